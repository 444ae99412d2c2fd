// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"errors"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
)

// includeMesh has a field for the captured ports and captures nothing else.
func includeMesh(otherwise string) Mesh {
	return Mesh{Owner: "test-mesh", Dialect: Dialect{
		Membership: Membership{ProxyContainer: "proxy"}, Base: Redirect{Proxy: Proxy{InboundPort: 4143}},
		Fields: []Field{{
			Parameter: ParameterInboundInclude, Kind: interception.SourceAnnotation, Keys: []string{"mesh.example/ports"}, Default: otherwise,
			Set: func(r *Redirect, value string) (err error) {
				r.Inbound.Include, err = interception.ParsePortSet(value)
				return err
			},
		}},
	}}
}

// TestNoSilentPlan has dialects that capture a pod but none of its traffic.
func TestNoSilentPlan(t *testing.T) {
	t.Parallel()
	pod := func(annotations map[string]string) interception.Pod {
		return interception.Pod{Namespace: "shop", Name: "web-0", Annotations: annotations, Containers: []interception.Container{{Name: "proxy"}}}
	}
	excluding := includeMesh("")
	excluding.Dialect.Base.Inbound = Inbound{Include: interception.AllPorts(), Exclude: interception.AllPorts()}
	excluding.Dialect.Fields = nil
	for name, test := range map[string]struct {
		mesh    Mesh
		pod     interception.Pod
		refused bool
	}{
		"no include by default":     {includeMesh(""), pod(nil), true},
		"the pod asks for nothing":  {includeMesh("8080"), pod(map[string]string{"mesh.example/ports": ""}), false},
		"the pod asks for a port":   {includeMesh(""), pod(map[string]string{"mesh.example/ports": "8080"}), false},
		"Base excludes what it has": {excluding, pod(nil), true},
		"an Istio pod without capture": {istioNode(), meshPod(
			annotate(trafficPrefix+"includeInboundPorts", ""), annotate(trafficPrefix+"includeOutboundIPRanges", "")), false},
		"an Istio pod that excludes all": {istioNode(), meshPod(
			annotate(trafficPrefix+"includeInboundPorts", ""), annotate(trafficPrefix+"excludeOutboundIPRanges", "0.0.0.0/0,::/0")), false},
	} {
		if err := test.mesh.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		planned, err := test.mesh.Plan(test.pod, interception.Facts{IPv6: true})
		if errors.Is(err, ErrDialect) != test.refused || (err != nil) != test.refused || (planned.Plan == nil) != test.refused {
			t.Errorf("%s: got %v and %v", name, planned.Plan, err)
		}
	}
}

// TestLeavesAllAlone compares leavesAllAlone with the plan of the redirect.
func TestLeavesAllAlone(t *testing.T) {
	t.Parallel()
	all, both := interception.AllPorts(), interception.AllPrefixes()
	out := func(o Outbound) Redirect {
		return Redirect{Proxy: Proxy{UIDs: interception.UIDs(1), InboundPort: 1, OutboundPort: 2}, Outbound: o}
	}
	rerouted := out(Outbound{Include: both, ExcludePorts: all})
	rerouted.Interfaces.Reroute = interception.Interfaces("vm0")
	dns := out(Outbound{})
	dns.DNS.Port = 3
	for name, test := range map[string]struct {
		redirect Redirect
		want     bool
	}{
		"nothing":              {out(Outbound{}), true},
		"inbound":              {Redirect{Proxy: Proxy{InboundPort: 1}, Inbound: Inbound{Include: interception.Ports(80)}}, false},
		"outbound":             {out(Outbound{Include: both}), false},
		"excluded prefixes":    {out(Outbound{Include: both, Exclude: both, IncludePorts: all}), true},
		"excluded ports":       {out(Outbound{Include: both, ExcludePorts: all}), true},
		"excluded other ports": {out(Outbound{IncludePorts: interception.Ports(80), ExcludePorts: interception.Ports(81)}), false},
		"excluded same ports":  {out(Outbound{IncludePorts: interception.Ports(80), ExcludePorts: interception.Ports(80)}), true},
		"no group":             {out(Outbound{Include: both, Groups: OwnerGroups{Limited: true}}), true},
		"virtual machines":     {rerouted, false},
		"DNS":                  {dns, false},
	} {
		if got := test.redirect.leavesAllAlone(); got != test.want {
			t.Errorf("%s: got %t", name, got)
		}
		redirects := false
		for _, rule := range mustPlan(t, test.redirect, interception.Facts{IPv6: true}).Rules() {
			redirects = redirects || strings.HasPrefix(rule.Action.String(), "redirect") && !strings.HasPrefix(string(rule.ID), "outbound.self")
		}
		if redirects == test.want {
			t.Errorf("%s: the plan redirects: %t", name, redirects)
		}
	}
}
