// SPDX-License-Identifier: Apache-2.0

package route

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/meshcni/meshcni/interception"
)

// TestOthers has objects of another program, and removes those that are the same as given ones.
func TestOthers(t *testing.T) {
	t.Parallel()
	s := newSocket(t)
	if _, err := applied(t, s, interception.Route{Type: interception.RouteUnreachable, Destination: netip.MustParsePrefix("0.0.0.0/0"), Table: 133}); err != nil {
		t.Fatal(err)
	}
	others(t, s, 100, "192.0.2.0/24", 0)
	others(t, s, 100, "198.51.100.0/24", 7)
	if err := s.namespace.Change("add another's rule and tunnel", func() error {
		rule := netlink.NewRule()
		rule.Priority, rule.Table, rule.Family = 103, 100, netlink.FAMILY_V4
		if err := netlink.RuleAdd(rule); err != nil {
			return err
		}
		return netlink.LinkAdd(&netlink.Vxlan{
			LinkAttrs: netlink.LinkAttrs{Name: "tunnel"}, VxlanId: 1000, Port: 6081, Group: netip.MustParseAddr("10.0.0.1").AsSlice(),
		})
	}); err != nil {
		t.Fatal(err)
	}
	seen := func() (all []string) {
		objects, err := s.Others(meshOwner())
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			switch o := o.(type) {
			case interception.Link:
				all = append(all, "link "+string(o.Name))
			case interception.Route:
				if o.Table != 0 && o.Table != 255 {
					all = append(all, textOf(o))
				}
			case interception.PolicyRule:
				if o.Priority == 103 {
					all = append(all, textOf(o))
				}
			}
		}
		return all
	}
	before := seen()
	if len(before) != 5 || slices.ContainsFunc(before, func(text string) bool { return strings.Contains(text, "133") }) {
		t.Errorf("seen: %q, want two links, two routes and a policy rule, and none of the owner's", before)
	}
	tunnel := func(vni uint32) interception.Link {
		return interception.Link{Name: "tunnel", Geneve: &interception.Geneve{VNI: vni, Remote: netip.MustParseAddr("10.0.0.1"), Port: 6081}}
	}
	route := func(metric uint32) interception.Route {
		return interception.Route{Destination: netip.MustParsePrefix("198.51.100.0/24"), Device: "lo", Table: 100, Metric: metric}
	}
	rule := func(table interception.RoutingTable) interception.PolicyRule {
		return interception.PolicyRule{Family: interception.IPv4, Any: true, Priority: 103, Table: table}
	}
	for _, of := range []struct {
		remove []interception.Object
		left   int
	}{
		{[]interception.Object{tunnel(1001), route(8), rule(101), interception.Link{Name: "lo"}}, 5},
		{[]interception.Object{tunnel(1000), route(7), rule(100)}, 2},
		{[]interception.Object{tunnel(1000), route(7), rule(100)}, 2},
	} {
		if err := s.RemoveSame(of.remove); err != nil {
			t.Fatal(err)
		}
		if left := seen(); len(left) != of.left {
			t.Errorf("left after %v: %q, want %d", of.remove, left, of.left)
		}
	}
}
