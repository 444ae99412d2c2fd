// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"errors"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/ambient/upstream"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
	"github.com/meshcni/meshcni/internal/testing/upstreamtest"
)

// nodeWithProxy returns a node's namespace with the interface to its proxy.
func nodeWithProxy(t *testing.T) *sandboxtest.Pod {
	t.Helper()
	node := sandboxtest.NewPod(t)
	for _, command := range []string{"link add vethz type veth peer name podz", "link set podz up", "link set vethz up"} {
		node.Run(t, "", append([]string{"ip"}, strings.Fields(command)...)...)
	}
	return node
}

// routing lists addresses, routes and policy rules without the protocols that tell who wrote them.
func routing(t *testing.T, node *sandboxtest.Pod) string {
	t.Helper()
	all := node.Run(t, "", "ip", "rule")
	for line := range strings.Lines(node.Run(t, "", "ip", "route", "show", "table", "all")) {
		if !strings.Contains(line, " proto kernel ") {
			all += line
		}
	}
	for line := range strings.Lines(node.Run(t, "", "ip", "-4", "-o", "address")) {
		all += strings.Join(strings.Fields(line)[1:4], " ") + "\n"
	}
	return regexp.MustCompile(` proto \w+`).ReplaceAllString(all, "")
}

func networkPlan(t *testing.T) *interception.Plan {
	t.Helper()
	plan, err := upstream.NodeRules{
		Release: upstream.NodeRelease120, Proxy: netip.MustParseAddr("10.244.0.14"), ProxyLink: "vethz", Node: netip.MustParseAddr("192.0.2.1"), UDPPort: 6081,
	}.NetworkPlan("test-ambient")
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// TestNetworkPlanIsTheAgents compares the plan with the agent's commands, with tunnels of VXLAN,
// which kernels without GENEVE have, too.
func TestNetworkPlanIsTheAgents(t *testing.T) {
	t.Parallel()
	agents := nodeWithProxy(t)
	before := routing(t, agents)
	for _, command := range []string{
		"link add istioin type vxlan id 1000 remote 10.244.0.14 dstport 6081", "link add istioout type vxlan id 1001 remote 10.244.0.14 dstport 6081",
	} {
		agents.Run(t, "", append([]string{"ip"}, strings.Fields(command)...)...)
	}
	for command := range strings.Lines(upstreamtest.NodeNetwork) {
		agents.Run(t, "", append([]string{"ip"}, strings.Fields(command)...)...)
	}
	plan := networkPlan(t)
	for i, o := range plan.Objects {
		if link, is := o.(interception.Link); is {
			link.VXLAN, link.Geneve = &interception.VXLAN{VNI: link.Geneve.VNI, Remote: link.Geneve.Remote, Port: link.Geneve.Port}, nil
			plan.Objects[i] = link
		}
	}
	for name, backend := range backends(t) {
		node := nodeWithProxy(t)
		if err := backend.Apply(t.Context(), node.Netns, plan); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(routing(t, agents), routing(t, node)); diff != "" {
			t.Errorf("%s (-agent +plan):\n%s", name, diff)
		}
		if err := backend.Remove(t.Context(), node.Netns, plan.Owner); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(before, routing(t, node)); diff != "" {
			t.Errorf("%s: after Remove (-before +after):\n%s", name, diff)
		}
	}
}

// TestNetworkPlanNeedsGeneve applies the plan with its GENEVE tunnels. A kernel without them
// refuses it by name, and the node stays as it was.
func TestNetworkPlanNeedsGeneve(t *testing.T) {
	t.Parallel()
	for name, backend := range backends(t) {
		node := nodeWithProxy(t)
		before := routing(t, node)
		err := backend.Apply(t.Context(), node.Netns, networkPlan(t))
		if errors.Is(err, interception.ErrUnsupported) {
			if !strings.Contains(err.Error(), "istioin") || !strings.Contains(strings.ToLower(err.Error()), "geneve") {
				t.Errorf("%s: %v, want the name of the link and of its kind", name, err)
			}
		} else if err != nil {
			t.Errorf("%s: %v, want no error or ErrUnsupported", name, err)
		} else if err := backend.Remove(t.Context(), node.Netns, "test-ambient"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(before, routing(t, node)); diff != "" {
			t.Errorf("%s (-before +after):\n%s", name, diff)
		}
	}
}
