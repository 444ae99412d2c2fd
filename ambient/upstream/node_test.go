// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
)

func nodeRules(release NodeRelease) NodeRules {
	return NodeRules{
		Release: release, Proxy: netip.MustParseAddr("10.244.0.14"), ProxyLink: "vethz", PodLink: "eth0", Node: netip.MustParseAddr("192.0.2.1"),
		UDPPort: 6081, DNS: true,
	}
}

// TestNodeRulesHasItsLines compares the ids of the rules with the agent's lines, in its order
// within each chain.
func TestNodeRulesHasItsLines(t *testing.T) {
	t.Parallel()
	const prerouting = "n1 n2 n3 n4 n14 n15 n16 n17 n18 n19 n20 n21 n22 n23 n24"
	for release, more := range map[NodeRelease][]string{NodeRelease118: nil, NodeRelease119: {"n12"}, NodeRelease120: {"n12"}} {
		plan, err := nodeRules(release).Plan("test-ambient")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for table := range plan.Tables() {
			for _, chain := range table.Chains {
				var ids []string
				for _, rule := range chain.Rules {
					ids = append(ids, string(rule.ID))
				}
				got = append(got, strings.Join(ids, " "))
			}
		}
		want := append([]string{"n10 n13", "n11", prerouting, "", "n9", "n6 n8", "n5 n7"}, more...)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q\n%s", release, got, want, plan)
		}
	}
	plan, err := nodeRules(NodeRelease118).ProxyPlan("test-ambient")
	if err != nil {
		t.Fatal(err)
	}
	rules := 0
	for at, rule := range plan.Rules() {
		if rules++; string(rule.ID) != []string{"z1", "z2", "z3", "z4"}[at.Index] {
			t.Errorf("%s is %s", at, rule.ID)
		}
	}
	if rules != 4 {
		t.Errorf("%d rules, want 4", rules)
	}
}

func TestNodeRulesIsChecked(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*NodeRules){
		"another release": func(u *NodeRules) { u.Release = "1.21" },
		"a proxy of IPv6": func(u *NodeRules) { u.Proxy = netip.MustParseAddr("fd00::1") },
		"no node":         func(u *NodeRules) { u.Node = netip.Addr{} },
		"no port":         func(u *NodeRules) { u.UDPPort = 0 },
	} {
		u := nodeRules(NodeRelease120)
		change(&u)
		if plan, err := u.Plan("test-ambient"); !errors.Is(err, ErrNodeRules) || plan != nil {
			t.Errorf("%s: Plan: %v, want ErrNodeRules", name, err)
		}
		if plan, err := u.ProxyPlan("test-ambient"); !errors.Is(err, ErrNodeRules) || plan != nil {
			t.Errorf("%s: ProxyPlan: %v, want ErrNodeRules", name, err)
		}
		if plan, err := u.NetworkPlan("test-ambient"); !errors.Is(err, ErrNodeRules) || plan != nil {
			t.Errorf("%s: NetworkPlan: %v, want ErrNodeRules", name, err)
		}
	}
	u := nodeRules(NodeRelease120)
	u.ProxyLink = ""
	if _, err := u.Plan("test-ambient"); !errors.Is(err, interception.ErrPlan) {
		t.Errorf("no link: %v, want ErrPlan", err)
	}
}
