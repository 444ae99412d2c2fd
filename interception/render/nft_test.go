// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/render"
)

// build returns a plan, which must be valid.
func build(t testing.TB, fill func(*interception.Builder)) *interception.Plan {
	t.Helper()
	plan, err := interception.Build("mesh-test", fill)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func prefixes(t testing.TB, list string) interception.PrefixSet {
	t.Helper()
	set, err := interception.ParsePrefixSet(list)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// script renders a plan, which must be valid.
func script(t testing.TB, plan *interception.Plan) string {
	t.Helper()
	text, err := render.NFT(plan)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestNFT(t *testing.T) {
	t.Parallel()
	plan := build(t, func(b *interception.Builder) {
		v4 := b.Set("excluded-v4", prefixes(t, "192.168.0.0/16,10.0.0.0/8,11.0.0.0/9"), "excluded destinations")
		b.Set("excluded-v6", prefixes(t, "::1/128"), "more of them")
		output := b.NAT("output")
		output.Entry(interception.Output, interception.Match{L4: interception.TCP()}, "connections from the pod")
		output.Do("output.excluded", interception.Match{DstSet: interception.Not(v4)}, interception.Return{}, "stays")
		b.LiveSet("live-v4", interception.IPv4, "members come and go")
		b.Raw("empty").Entry(interception.Prerouting, interception.Match{}, "an entry")
	})
	const want = `table inet mesh-test
delete table inet mesh-test
table inet mesh-test {
	set set-excluded-v4 {
		type ipv4_addr
		flags constant, interval
		comment "excluded destinations"
		elements = {
			10.0.0.0-11.127.255.255,
			192.168.0.0/16,
		}
	}

	set set-excluded-v6 {
		type ipv6_addr
		flags constant, interval
		comment "more of them"
		elements = {
			::1,
		}
	}

	set set-live-v4 {
		type ipv4_addr
		flags interval
		comment "members come and go"
	}

	chain hook.nat.output {
		type nat hook output priority -100; policy accept;
		meta l4proto tcp jump nat-output comment "nat.output.output d46e2b70 connections from the pod"
	}

	chain nat-output {
		ip daddr != @set-excluded-v4 return comment "output.excluded 30b1270c stays"
	}

	chain hook.raw.prerouting {
		type filter hook prerouting priority -300; policy accept;
		jump raw-empty comment "raw.prerouting.empty eec20274 an entry"
	}

	chain raw-empty {
	}
}
`
	got := script(t, plan)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("script (-want +got):\n%s", diff)
	}
	if again := script(t, plan); again != got {
		t.Error("the same plan gives another text the second time")
	}
}

func TestNFTWithoutObjects(t *testing.T) {
	t.Parallel()
	const want = "table inet mesh-test\ndelete table inet mesh-test\n"
	if got := script(t, build(t, func(*interception.Builder) {})); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestNFTInvalid checks that the text contains only validated parts.
func TestNFTInvalid(t *testing.T) {
	t.Parallel()
	for _, plan := range []*interception.Plan{
		{},
		{Owner: "redirect"},
		{Owner: "mesh-test { } flush ruleset"},
		{Owner: "mesh-test", Objects: []interception.Object{interception.Table{Kind: interception.NAT, Chains: []interception.Chain{
			{Name: "output", Rules: []interception.Rule{{ID: "a.rule", Action: interception.Return{}, Why: `"; flush ruleset #`}}},
		}}}},
		{Owner: "mesh-test", Objects: []interception.Object{interception.Table{Kind: interception.NAT, Chains: []interception.Chain{
			{Name: "output", Rules: []interception.Rule{{ID: "a.rule", Why: "without an action"}}},
		}}}},
	} {
		if text, err := render.NFT(plan); !errors.Is(err, interception.ErrPlan) || text != nil {
			t.Errorf("%v: got %q, %v, want ErrPlan", plan, text, err)
		}
	}
}

func TestNFTRules(t *testing.T) {
	t.Parallel()
	tcp, udp := interception.TCP, interception.UDP
	in, notIn := interception.Is[interception.PrefixSet], interception.Not[interception.PrefixSet]
	v4, v6 := interception.SetRef{Name: "v4", Family: interception.IPv4}, interception.SetRef{Name: "v6", Family: interception.IPv6}
	for want, match := range map[string]interception.Match{
		"":                              {},
		"meta nfproto ipv4":             {Family: interception.IPv4},
		"meta nfproto ipv6":             {Family: interception.IPv6},
		`oifname "lo"`:                  {Out: interception.Is(interception.Interfaces("lo"))},
		`oifname != { "eth0", "lo" }`:   {Out: interception.Not(interception.Interfaces("lo", "eth0"))},
		"ip saddr 127.0.0.6":            {Src: in(prefixes(t, "127.0.0.6/32"))},
		"ip saddr 127.0.0.0/8":          {Src: in(prefixes(t, "127.0.0.0/8"))},
		"ip daddr != 10.0.0.0-10.0.0.2": {Dst: notIn(prefixes(t, "10.0.0.0/31,10.0.0.2/32"))},
		"ip daddr { 10.0.0.0/8, 11.0.0.1-11.0.0.2 }": {Dst: in(prefixes(t, "10.0.0.0/8,11.0.0.1/32,11.0.0.2/32"))},
		"meta nfproto ipv6 ip6 daddr != ::1":         {Family: interception.IPv6, Dst: notIn(prefixes(t, "::1/128"))},
		"ip6 saddr ::6 ip6 daddr != @set-v6":         {Src: in(prefixes(t, "::6/128")), DstSet: interception.Not(v6)},
		"ip saddr @set-v4":                           {SrcSet: interception.Is(v4)},
		"meta l4proto udp":                           {L4: udp()},
		"tcp dport 15008":                            {L4: tcp().To(interception.Ports(15008))},
		"tcp dport != 80-90":                         {L4: tcp().NotTo(interception.PortRange(80, 90))},
		"udp sport 53 udp dport { 53, 1000-1002 }":   {L4: udp().From(interception.Ports(53)).To(interception.Ports(1000, 1001, 1002, 53))},
		"meta skuid 1337":                            {UID: interception.Is(interception.UIDs(1337))},
		"meta skuid != { 0, 1337-1338 }":             {UID: interception.Not(interception.UIDs(1337, 1338, 0))},
		"meta skgid 1337-1338":                       {GID: interception.Is(interception.GIDs(1338, 1337))},
		`oifname "eth*"`:                             {Out: interception.Is(interception.Interfaces("eth*", "eth0", "eth1*"))},
		`oifname != "lo" oifname != "eth*"`:          {Out: interception.Not(interception.Interfaces("eth*", "lo"))},
		"tcp flags & (fin | syn | rst | ack) != syn": {L4: tcp().NotFlags(interception.Opening())},
		"tcp dport 80 tcp flags & (urg) == 0": {
			L4: tcp().To(interception.Ports(80)).Flags(interception.TCPFlags{Mask: interception.FlagURG}),
		},
		"meta mark == 0x539":         {Mark: interception.Is(interception.WholeMark(0x539))},
		"meta mark & 0xff != 0x39":   {Mark: interception.Not(interception.MarkBits{Value: 0x39, Mask: 0xff})},
		"ct mark & 0x1 == 0x1":       {ConnMark: interception.Is(interception.MarkBits{Value: 1, Mask: 1})},
		"ct state established":       {State: interception.Is(interception.StateEstablished)},
		"ct state ! new,established": {State: interception.Not(interception.StateNew | interception.StateEstablished)},
		"ct direction reply":         {Direction: interception.DirectionReply},
		"ct state established ct direction original": {
			State: interception.Is(interception.StateEstablished), Direction: interception.DirectionOriginal,
		},
		`meta nfproto ipv4 oifname "lo" ip saddr 10.0.0.1 ip daddr != 127.0.0.1 tcp dport 80 meta skuid 1 meta skgid 2`: {
			Family: interception.IPv4, Out: interception.Is(interception.Interfaces("lo")), Src: in(prefixes(t, "10.0.0.1/32")),
			Dst: notIn(prefixes(t, "127.0.0.1/32")), L4: tcp().To(interception.Ports(80)),
			UID: interception.Is(interception.UIDs(1)), GID: interception.Is(interception.GIDs(2)),
		},
	} {
		plan := build(t, func(b *interception.Builder) {
			b.Set("v4", prefixes(t, "10.0.0.0/8"), "a set")
			b.Set("v6", prefixes(t, "::1/128"), "a set")
			b.Filter("chain").Do("the.rule", match, interception.Drop{}, "why")
		})
		words := strings.TrimSpace(want + " drop comment")
		if text := script(t, plan); !strings.Contains(text, "\t"+words+` "the.rule `) {
			t.Errorf("no rule %q in\n%s", words, text)
		}
	}
	in80 := build(t, func(b *interception.Builder) {
		b.Filter("chain").Do("the.rule", interception.Match{In: interception.Is(interception.Interfaces("eth0"))}, interception.Accept{}, "why")
	})
	if text := script(t, in80); !strings.Contains(text, "\tiifname \"eth0\" accept comment") {
		t.Errorf("no rule about the interface in\n%s", text)
	}
}

func TestNFTActions(t *testing.T) {
	t.Parallel()
	tcp, v6 := interception.Match{L4: interception.TCP()}, interception.Match{Family: interception.IPv6}
	whole, bits := interception.WholeMark(0x539), interception.MarkBits{Value: 1, Mask: 3}
	text := script(t, build(t, func(b *interception.Builder) {
		chain, called := b.NAT("chain"), b.NAT("called")
		chain.Do("a.accept", interception.Match{}, interception.Accept{}, "why")
		chain.Do("a.return", interception.Match{}, interception.Return{}, "why")
		chain.Do("a.redirect", tcp, interception.RedirectTo{Port: 15001}, "why")
		chain.Do("a.dnat", v6, interception.DNATTo{Addr: netip.MustParseAddr("fd00::1")}, "why")
		chain.Call("a.jump", interception.Match{}, called, "why")
		b.NAT("sources").Do("a.snat", interception.Match{Family: interception.IPv4, L4: interception.UDP()},
			interception.SNATTo{Addr: netip.MustParseAddr("10.0.0.1"), Port: 80}, "why")
		b.NAT("kept").Do("a.keep", v6, interception.SNATTo{Keep: true}, "why")
		filter, mangle, raw := b.Filter("chain"), b.Mangle("chain"), b.Raw("chain")
		filter.Do("a.drop", interception.Match{}, interception.Drop{}, "why")
		filter.Do("a.reject", v6, interception.Reject{}, "why")
		filter.Do("b.reject", interception.Match{}, interception.Reject{}, "why")
		mangle.Do("a.tproxy", tcp, interception.TProxyTo{Port: 15006, Mark: whole}, "why")
		mangle.Do("a.mark", interception.Match{}, interception.SetMark{Mark: bits}, "why")
		mangle.Do("b.mark", interception.Match{}, interception.SetMark{Mark: interception.MarkBits{Mask: 3}}, "why")
		mangle.Do("a.connmark", interception.Match{}, interception.SetConnMark{Mark: whole}, "why")
		mangle.Do("a.save", interception.Match{}, interception.SaveMark{}, "why")
		mangle.Do("a.restore", interception.Match{}, interception.RestoreMark{}, "why")
		raw.Do("a.zone", interception.Match{}, interception.SetZone{Zone: 2}, "why")
		raw.Do("a.zone-orig", interception.Match{}, interception.SetZone{Zone: 2, Direction: interception.DirectionOriginal}, "why")
		raw.Do("a.zone-reply", interception.Match{}, interception.SetZone{Zone: 2, Direction: interception.DirectionReply}, "why")
		raw.Do("a.notrack", interception.Match{}, interception.NoTrack{}, "why")
		raw.Do("a.log", interception.Match{}, interception.Log{Prefix: "mesh: "}, "why")
	}))
	for _, want := range []string{
		`accept comment "a.accept `, `return comment "a.return `, `meta l4proto tcp redirect to :15001 comment "a.redirect `,
		`meta nfproto ipv6 dnat ip6 to fd00::1 comment "a.dnat `, `jump nat-called comment "a.jump `,
		`meta nfproto ipv4 meta l4proto udp snat ip to 10.0.0.1:80 comment "a.snat `, `meta nfproto ipv6 snat ip6 to ip6 saddr comment "a.keep `, `drop comment "a.drop `,
		`meta nfproto ipv6 meta l4proto tcp reject with tcp reset comment "a.reject `,
		`meta nfproto ipv6 reject with icmpv6 port-unreachable comment "a.reject `,
		`meta l4proto tcp reject with tcp reset comment "b.reject `, `reject with icmpx port-unreachable comment "b.reject `,
		`meta l4proto tcp tproxy to :15006 meta mark set 0x539 accept comment "a.tproxy `,
		`meta l4proto tcp drop comment "a.tproxy `,
		`meta mark set meta mark & 0xfffffffc | 0x1 comment "a.mark `, `meta mark set meta mark & 0xfffffffc comment "b.mark `,
		`ct mark set 0x539 comment "a.connmark `, `ct mark set meta mark comment "a.save `, `meta mark set ct mark comment "a.restore `,
		`ct zone set 2 comment "a.zone `, `ct original zone set 2 comment "a.zone-orig `, `ct reply zone set 2 comment "a.zone-reply `, `notrack comment "a.notrack `, `log prefix "mesh: " comment "a.log `,
	} {
		if !strings.Contains(text, "\t\t"+want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// TestNFTHead has objects without syntax in nft.
func TestNFTHead(t *testing.T) {
	t.Parallel()
	text := script(t, build(t, func(b *interception.Builder) {
		b.Link(interception.Link{ID: "link.dummy", Name: "mesh0", Why: "a link"})
		b.Link(interception.Link{
			ID: "link.geneve", Name: "mesh1", Why: "a tunnel",
			Geneve: &interception.Geneve{VNI: 1000, Remote: netip.MustParseAddr("10.0.0.1"), Port: 6081},
		})
		b.Link(interception.Link{
			ID: "link.vxlan", Name: "mesh2", Why: "a tunnel", MTU: 1430, HardwareAddr: "02:00:00:00:00:01",
			VXLAN: &interception.VXLAN{VNI: 1001, Remote: netip.MustParseAddr("fd00::1"), Port: 4789},
		})
		b.Link(interception.Link{ID: "link.veth", Name: "in0", Why: "a pair", Veth: &interception.Veth{Peer: "in1", Namespace: "proxy"}})
		b.Address(interception.Address{ID: "the.address", Device: "lo", Prefix: netip.MustParsePrefix("::6/128"), Why: "an address"})
		b.Sysctl(interception.Sysctl{ID: "the.sysctl", Key: "ipv4/conf/all/route_localnet", Value: 1, Why: "a sysctl"})
		b.Route(interception.Route{
			ID: "route.local", Type: interception.RouteLocal, Destination: netip.MustParsePrefix("::/0"), Device: "lo", Table: 133, Why: "a route",
		})
		b.Route(interception.Route{
			ID: "route.via", Destination: netip.MustParsePrefix("10.0.0.0/8"), Device: "eth0", Gateway: netip.MustParseAddr("10.0.0.1"), Why: "a route",
		})
		b.Route(interception.Route{
			ID: "route.more", Destination: netip.MustParsePrefix("fd00::/8"), Device: "eth0", Gateway: netip.MustParseAddr("fd00::1"), OnLink: true,
			Source: netip.MustParseAddr("fd00::2"), Metric: 5, Why: "a route",
		})
		b.Route(interception.Route{
			ID: "route.none", Type: interception.RouteUnreachable, Destination: netip.MustParsePrefix("0.0.0.0/0"), Table: 7, Why: "a route",
		})
		b.PolicyRule(interception.PolicyRule{
			ID: "the.rule", Family: interception.IPv4, Mark: interception.MarkBits{Value: 1, Mask: 3}, Table: 133, Priority: 32764, Why: "a rule",
		})
		b.PolicyRule(interception.PolicyRule{
			ID: "goes", Family: interception.IPv4, Mark: interception.WholeMark(1), Goto: 32766, Priority: 8, Why: "a rule",
		})
		b.PolicyRule(interception.PolicyRule{ID: "any", Family: interception.IPv6, Any: true, Table: 133, Priority: 10, Why: "a rule"})
		b.PolicyRule(interception.PolicyRule{
			ID: "selected", Family: interception.IPv6, Source: netip.MustParsePrefix("fd00::/8"), Destination: netip.MustParsePrefix("2001:db8::1/128"),
			In: "eth0", Priority: 512, Why: "a rule",
		})
	}))
	const want = `# ip link add mesh0 up type dummy # link.dummy: a link
# ip link add mesh1 up type geneve id 1000 remote 10.0.0.1 dstport 6081 # link.geneve: a tunnel
# ip link add mesh2 up mtu 1430 address 02:00:00:00:00:01 type vxlan id 1001 remote fd00::1 dstport 4789 nolearning # link.vxlan: a tunnel
# ip link add in0 up type veth peer name in1 netns proxy # link.veth: a pair
# ip address add ::6/128 dev lo # the.address: an address
# sysctl -w net/ipv4/conf/all/route_localnet=1 # the.sysctl: a sysctl
# ip -6 route add local ::/0 dev lo table 133 # route.local: a route
# ip -4 route add unicast 10.0.0.0/8 dev eth0 via 10.0.0.1 table main # route.via: a route
# ip -6 route add unicast fd00::/8 dev eth0 via fd00::1 onlink src fd00::2 metric 5 table main # route.more: a route
# ip -4 route add unreachable 0.0.0.0/0 table 7 # route.none: a route
# ip -4 rule add priority 32764 fwmark 0x1/0x3 table 133 # the.rule: a rule
# ip -4 rule add priority 8 fwmark 0x1 goto 32766 # goes: a rule
# ip -6 rule add priority 10 table 133 # any: a rule
# ip -6 rule add priority 512 from fd00::/8 to 2001:db8::1/128 iif eth0 table main # selected: a rule
table inet mesh-test
delete table inet mesh-test
table inet mesh-test {
}
`
	if diff := cmp.Diff(want, text); diff != "" {
		t.Errorf("script (-want +got):\n%s", diff)
	}
}

// TestNFTCopiesFixedBits has copies of bits that the match of the rule fixes.
func TestNFTCopiesFixedBits(t *testing.T) {
	t.Parallel()
	text := script(t, build(t, func(b *interception.Builder) {
		bits := interception.Is(interception.MarkBits{Value: 0x220, Mask: 0x220})
		chain := b.Mangle("chain")
		chain.Do("a.save", interception.Match{Mark: bits}, interception.SaveMark{Mask: 0x20}, "why")
		chain.Do("a.restore", interception.Match{ConnMark: bits}, interception.RestoreMark{Mask: 0x220}, "why")
	}))
	for _, want := range []string{"ct mark set ct mark & 0xffffffdf | 0x20", "meta mark set meta mark & 0xfffffddf | 0x220"} {
		if !strings.Contains(text, want) {
			t.Errorf("want %q in:\n%s", want, text)
		}
	}
}

// TestNFTUnsupported has actions without syntax in nft. The error names the rule.
func TestNFTUnsupported(t *testing.T) {
	t.Parallel()
	for _, action := range []interception.MangleAction{interception.SaveMark{Mask: 3}, interception.RestoreMark{Mask: 3}} {
		plan := build(t, func(b *interception.Builder) {
			b.Mangle("chain").Do("the.rule", interception.Match{}, action, "the reason")
		})
		text, err := render.NFT(plan)
		if !errors.Is(err, interception.ErrUnsupported) || !strings.Contains(err.Error(), "the.rule (the reason)") || text != nil {
			t.Errorf("%v: got %q, %v, want ErrUnsupported about the rule", action, text, err)
		}
	}
}
