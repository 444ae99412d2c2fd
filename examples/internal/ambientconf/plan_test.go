// SPDX-License-Identifier: Apache-2.0

package ambientconf_test

import (
	"fmt"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/examples/internal/ambientconf"
	"github.com/meshcni/meshcni/interception"
)

// TestWholePlan has the rules of a pod and those of the host in one plan that dataplanes can try.
func TestWholePlan(t *testing.T) {
	t.Parallel()
	for _, settings := range []ambientconf.Config{{}, {DNS: true}, {DNS: true, NoHost: true}} {
		plan, err := settings.WholePlan()
		if err == nil {
			err = plan.Validate()
		}
		if err != nil {
			t.Errorf("%+v: %v", settings, err)
			continue
		}
		rules := map[interception.RuleID]bool{}
		for _, rule := range plan.Rules() {
			rules[rule.ID] = true
		}
		want := map[interception.RuleID]bool{
			"outbound.capture": true, "inbound.capture.v6": true, "dns.udp": settings.DNS, "probes.v4": !settings.NoHost, "probes.v6": !settings.NoHost,
		}
		for id, is := range want {
			if rules[id] != is {
				t.Errorf("%+v: the plan has the rule %s: %t, want %t", settings, id, rules[id], is)
			}
		}
		_, has := plan.Set(ambient.ProbeSet(interception.IPv4))
		if has == settings.NoHost {
			t.Errorf("%+v: the plan has the host's sets: %t", settings, has)
		}
	}
}

// TestWholePlanOnNode has the rules of the host and those of the proxy.
func TestWholePlanOnNode(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"veth", "vxlan"} {
		for _, dns := range []bool{false, true} {
			plan, err := ambientconf.Config{Mode: ambientconf.ModeNode, Way: way, ProxyNamespace: "mesh", DNS: dns}.WholePlan()
			if err == nil {
				err = plan.Validate()
			}
			if err != nil {
				t.Errorf("%s: %v", way, err)
				continue
			}
			actions := map[string]bool{}
			for _, rule := range plan.Rules() {
				actions[fmt.Sprintf("%T", rule.Action)] = true
			}
			for _, want := range []string{"interception.TProxyTo", "interception.SetConnMark", "interception.Reject"} {
				if !actions[want] {
					t.Errorf("%s: no rule has the action %s among %v", way, want, actions)
				}
			}
			if _, has := plan.Set(ambient.MeshedSet(interception.IPv6)); !has {
				t.Errorf("%s: the plan has no set of pods", way)
			}
		}
	}
}
