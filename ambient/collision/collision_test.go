// SPDX-License-Identifier: Apache-2.0

package collision_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/collision"
	"github.com/meshcni/meshcni/interception"
)

// outboundRule is the policy rule that the plan for a proxy of an even generation has for captured
// connections.
func outboundRule() interception.PolicyRule {
	n := ambient.IstioNodeNumbers()
	mark := interception.MarkBits{Value: n.Outbound.Mark.Value, Mask: n.Outbound.Mark.Mask | n.Odd.Mask}
	return interception.PolicyRule{Family: interception.IPv4, Mark: mark, Table: n.Outbound.Table, Priority: n.Outbound.Priority}
}

func TestFind(t *testing.T) {
	t.Parallel()
	veth := ambient.NodeProxy{
		Addresses: []netip.Addr{netip.MustParseAddr("10.244.0.14"), netip.MustParseAddr("fd00:10:244::e")},
		Namespace: "proxy", Node: netip.MustParseAddr("192.0.2.1"),
	}
	tunnel, dual := veth, interception.Facts{IPv6: true, LoopbackIPv6: true}
	tunnel.Way = ambient.WayVXLAN
	rule := func(m interception.Match, a interception.Action) collision.Standing {
		return collision.Standing{Chains: []interception.ForeignChain{{
			Table: "ip other", Name: "PREROUTING", Hook: "prerouting", Rules: []interception.Rule{{Match: m, Action: a}},
		}}}
	}
	bits := func(value, mask interception.Mark) interception.MarkBits {
		return interception.MarkBits{Value: value, Mask: mask}
	}
	policy := interception.PolicyRule{Family: interception.IPv4, Mark: bits(0x10000, 0xf0000), Table: 7, Priority: 7}
	policyRule := func(change func(*interception.PolicyRule)) collision.Standing {
		changed := policy
		change(&changed)
		return collision.Standing{PolicyRules: []interception.PolicyRule{changed}}
	}
	all4 := netip.MustParsePrefix("0.0.0.0/0")
	for name, test := range map[string]struct {
		stands collision.Standing
		want   []string
	}{
		"nothing":        {},
		"another bit":    {stands: rule(interception.Match{}, interception.SetMark{Mark: bits(0x4000, 0x4000)})},
		"another policy": {stands: policyRule(func(*interception.PolicyRule) {})},
		"a mark that is written": {
			rule(interception.Match{}, interception.SetMark{Mark: bits(0, 0x180)}),
			[]string{"packet mark 0x100/0x120 is used by ip other/PREROUTING:  -> set mark 0x0/0x180"},
		},
		"a whole mark that is matched": {
			rule(interception.Match{Mark: interception.Is(interception.WholeMark(7))}, interception.Drop{}),
			[]string{
				"packet mark 0x40/0x60 is used by ip other/PREROUTING: mark 0x7 -> drop", "packet mark 0x100/0x120 is used by ip other/PREROUTING: mark 0x7 -> drop",
				"packet mark 0x800/0x820 is used by ip other/PREROUTING: mark 0x7 -> drop",
			},
		},
		"a mark of connections": {
			rule(interception.Match{ConnMark: interception.Is(bits(0x10, 0x10))}, interception.Accept{}),
			[]string{"connection mark 0x210/0x230 is used by ip other/PREROUTING: connmark 0x10/0x10 -> accept"},
		},
		"a mark that is given to connections": {
			rule(interception.Match{}, interception.SetConnMark{Mark: bits(0x800, 0x800)}),
			[]string{"connection mark 0x800/0x820 is used by ip other/PREROUTING:  -> set connmark 0x800/0x800"},
		},
		"a mark that is saved": {
			rule(interception.Match{}, interception.SaveMark{Mask: 0x800}),
			[]string{"connection mark 0x800/0x820 is used by ip other/PREROUTING:  -> save mark/0x800"},
		},
		"a mark that is restored": {
			rule(interception.Match{}, interception.RestoreMark{Mask: 0x40}),
			[]string{"packet mark 0x40/0x60 is used by ip other/PREROUTING:  -> restore mark/0x40"},
		},
		"a mark of TPROXY": {
			rule(interception.Match{L4: interception.TCP()}, interception.TProxyTo{Port: 1, Mark: bits(0x40, 0x40)}),
			[]string{"packet mark 0x40/0x60 is used by ip other/PREROUTING: tcp -> tproxy to :1 mark 0x40/0x40"},
		},
		"a priority": {
			policyRule(func(r *interception.PolicyRule) { r.Priority = 101 }),
			[]string{"priority 101 is used by policy rule v4 priority 101 mark 0x10000/0xf0000 table 7"},
		},
		"a table": {
			policyRule(func(r *interception.PolicyRule) { r.Table = 102 }),
			[]string{"table 102 is used by policy rule v4 priority 7 mark 0x10000/0xf0000 table 102"},
		},
		"a mark of routing": {
			policyRule(func(r *interception.PolicyRule) { r.Mark = bits(0x200, 0xf00) }),
			[]string{
				"packet mark 0x100/0x120 is used by policy rule v4 priority 7 mark 0x200/0xf00 table 7",
				"packet mark 0x800/0x820 is used by policy rule v4 priority 7 mark 0x200/0xf00 table 7",
			},
		},
		"a rule of the plan": {
			stands: policyRule(func(r *interception.PolicyRule) { *r = outboundRule() }),
		},
		"a route in a table": {
			collision.Standing{Routes: []interception.Route{{Destination: netip.MustParsePrefix("10.0.0.0/8"), Device: "eth0", Table: 100}}},
			[]string{"table 100 is used by route unicast 10.0.0.0/8 dev eth0"},
		},
		"a route in another table": {stands: collision.Standing{Routes: []interception.Route{{Destination: all4, Device: "eth0"}}}},
		"a route of the plan": {stands: collision.Standing{Routes: []interception.Route{{
			Destination: all4, Device: "istioout", Gateway: netip.MustParseAddr("192.168.127.2"), Table: 101,
		}}}},
		"an interface": {collision.Standing{Links: []interception.Interface{"eth0", "istioin"}}, []string{"link istioin is used by an interface of that name"}},
		"an interface that rules take for a link": {
			collision.Standing{Links: []interception.Interface{"eth0", "istioin-x", "istio"}},
			[]string{"the pattern istioin* is used by interface istioin-x"},
		},
		"a subnet": {
			collision.Standing{Addresses: []netip.Prefix{netip.MustParsePrefix("192.168.0.1/16"), netip.MustParsePrefix("10.0.0.1/8")}},
			[]string{"subnet 192.168.126.0/30 is used by address 192.168.0.1/16", "subnet 192.168.127.0/30 is used by address 192.168.0.1/16"},
		},
		"a port of tunnels": {collision.Standing{UDPPorts: []interception.Port{6081, 4789}}, []string{"UDP port 6081 is used by a socket or a tunnel"}},
	} {
		plan, err := ambient.NodePlan(tunnel, ambient.IstioNodeNumbers(), interception.Facts{}, "test-ambient")
		if name == "a route of the plan" {
			plan, err = ambient.NodePlan(veth, ambient.IstioNodeNumbers(), dual, "test-ambient")
		}
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range collision.Find(plan, test.stands) {
			got = append(got, c.String())
		}
		slices.Sort(got)
		slices.Sort(test.want)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s:\n%q, want\n%q", name, got, test.want)
		}
	}
	plan, err := ambient.NodePlan(veth, ambient.IstioNodeNumbers(), dual, "test-ambient")
	if err != nil {
		t.Fatal(err)
	}
	if got := collision.Find(plan, collision.Standing{UDPPorts: []interception.Port{6081}}); got != nil {
		t.Errorf("a pair of interfaces has no port: %v", got)
	}
}

// TestNumbersOfCommonPrograms has the marks that programs of Kubernetes nodes use by default: the
// numbers of node-ambient share no bit with them.
func TestNumbersOfCommonPrograms(t *testing.T) {
	t.Parallel()
	proxy := func(generation uint8) ambient.NodeProxy {
		return ambient.NodeProxy{
			Addresses: []netip.Addr{netip.MustParseAddr("10.244.0.14")}, Namespace: fmt.Sprint("proxy-", generation), Generation: generation,
		}
	}
	plan, err := ambient.NodePlan(proxy(0), ambient.BesideIstioNodeNumbers(), interception.Facts{}, "test-ambient", proxy(1))
	if err != nil {
		t.Fatal(err)
	}
	for program, bits := range map[string]interception.Mark{
		"kube-proxy": 0x4000, "kubelet": 0x8000, "the CNI plugin portmap": 0x2000, "Calico": 0xffff0000, "AWS VPC CNI": 0x80,
		"Cilium": 0xf00, "Azure NPM": 0xe00,
	} {
		chain := interception.ForeignChain{Table: "ip nat", Name: "OTHER", Rules: []interception.Rule{{
			Match:  interception.Match{Mark: interception.Is(interception.MarkBits{Value: bits, Mask: bits})},
			Action: interception.SetConnMark{Mark: interception.MarkBits{Value: bits, Mask: bits}},
		}}}
		if shared := collision.Find(plan, collision.Standing{Chains: []interception.ForeignChain{chain}}); shared != nil {
			t.Errorf("%s: %v", program, shared)
		}
	}
}
