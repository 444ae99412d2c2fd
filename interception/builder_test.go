// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

// TestBuildRefuses has one mistake in each plan, and what the error must contain.
func TestBuildRefuses(t *testing.T) {
	t.Parallel()
	v4, v6 := Prefixes(netip.MustParsePrefix("10.0.0.0/8")), Prefixes(netip.MustParsePrefix("fd00::/8"))
	// one returns a plan with one rule in a nat chain that Output leads to.
	one := func(match Match, action NATAction) func(*Builder) {
		return func(b *Builder) {
			c := b.NAT("output")
			c.Entry(Output, Match{}, "reason")
			c.Do("rule", match, action, "reason")
		}
	}
	for _, tc := range []struct {
		name, want string
		fill       func(*Builder)
	}{
		{"no action", "no action", one(Match{}, nil)},
		{"redirect without protocol", "needs a protocol", one(Match{}, RedirectTo{Port: 1})},
		{"redirect to port 0", "port 0", one(Match{L4: TCP()}, RedirectTo{})},
		{"ports of no protocol", "begin with TCP() or UDP()", one(Match{L4: L4{}.To(Ports(1))}, Return{})},
		{"is in an empty set", "dport is compared with is empty", one(Match{L4: TCP().To(PortSet{})}, Return{})},
		{"is not in an empty set", "dport is compared with is empty", one(Match{L4: TCP().NotTo(PortSet{})}, Return{})},
		{"source port in an empty set", "sport is compared with is empty", one(Match{L4: TCP().From(PortSet{})}, Return{})},
		{"no prefixes", "dst is compared with is empty", one(Match{Dst: Is(PrefixSet{})}, Return{})},
		{"no users", "uid is compared with is empty", one(Match{UID: Not(UIDSet{})}, Return{})},
		{"no groups", "gid is compared with is empty", one(Match{GID: Is(GIDSet{})}, Return{})},
		{"no interfaces", "out is compared with is empty", one(Match{Out: Is(Interfaces())}, Return{})},
		{"bad interface", "not allowed at byte 3", one(Match{Out: Is(Interfaces("eth 0"))}, Return{})},
		{"both families in one condition", "write a rule for each family", one(Match{Dst: Is(v4.Union(v6))}, Return{})},
		{"families that exclude each other", "names both families", one(Match{Src: Is(v4), Dst: Is(v6)}, Return{})},
		{"family against prefix", "names both families", one(Match{Family: IPv6, Dst: Not(v4)}, Return{})},
		{"incoming interface in output", "no incoming interface", one(Match{In: Is(Interfaces("lo"))}, Return{})},
		{"set that is not in the plan", "is not in the plan", one(Match{DstSet: Is(SetRef{"elsewhere", IPv4})}, Return{})},
		{"reference to nothing", "dst is compared with is empty", one(Match{DstSet: Is(SetRef{})}, Return{})},
		{"owner in prerouting", "no owner is known in prerouting", func(b *Builder) {
			c := b.NAT("inbound")
			c.Entry(Prerouting, Match{}, "reason")
			c.Do("rule", Match{UID: Is(UIDs(1))}, Return{}, "reason")
		}},
		{"outgoing interface in prerouting, after a jump", "no outgoing interface", func(b *Builder) {
			inner, outer := b.NAT("inner"), b.NAT("outer")
			outer.Entry(Prerouting, Match{}, "reason")
			outer.Call("call", Match{}, inner, "reason")
			inner.Do("rule", Match{Out: Is(Interfaces("lo"))}, Return{}, "reason")
		}},
		{"redirect in postrouting", "works in [prerouting output] only", func(b *Builder) {
			c := b.NAT("post")
			c.Entry(Postrouting, Match{}, "reason")
			c.Do("rule", Match{L4: TCP()}, RedirectTo{1}, "reason")
		}},
		{"tproxy in output", "works in [prerouting] only", func(b *Builder) {
			c := b.Mangle("output")
			c.Entry(Output, Match{}, "reason")
			c.Do("rule", Match{L4: TCP()}, TProxyTo{1, WholeMark(1)}, "reason")
		}},
		{"tproxy without protocol", "needs a protocol", func(b *Builder) {
			b.Mangle("c").Do("rule", Match{}, TProxyTo{1, WholeMark(1)}, "reason")
		}},
		{"tproxy without mark", "writes no bit", func(b *Builder) {
			b.Mangle("c").Do("rule", Match{L4: TCP()}, TProxyTo{Port: 1}, "reason")
		}},
		{"mark outside of its mask", "outside of the mask", func(b *Builder) {
			b.Mangle("c").Do("rule", Match{}, SetMark{MarkBits{2, 1}}, "reason")
		}},
		{"condition on a mark outside of its mask", "outside of the mask", func(b *Builder) {
			b.Mangle("c").Do("rule", Match{ConnMark: Is(MarkBits{2, 1})}, Return{}, "reason")
		}},
		{"state in raw", "raw comes before connection tracking", func(b *Builder) {
			b.Raw("c").Do("rule", Match{State: Is(StateNew)}, Return{}, "reason")
		}},
		{"direction in raw", "raw comes before connection tracking", func(b *Builder) {
			b.Raw("c").Do("rule", Match{Direction: DirectionReply}, Return{}, "reason")
		}},
		{"no direction", "direction 3 is not a direction", func(b *Builder) {
			b.Mangle("c").Do("rule", Match{Direction: DirectionReply + 1}, Return{}, "reason")
		}},
		{"zone of no direction", "direction 3 is not a direction", func(b *Builder) {
			b.Raw("c").Do("rule", Match{}, SetZone{1, DirectionReply + 1}, "reason")
		}},
		{"default zone of a direction", "zone 0 direction reply: the default zone is that of both directions", func(b *Builder) {
			b.Raw("c").Do("rule", Match{}, SetZone{0, DirectionReply}, "reason")
		}},
		{"flags of UDP", "only TCP has flags", func(b *Builder) {
			b.Raw("c").Do("rule", Match{L4: UDP().Flags(Opening())}, Return{}, "reason")
		}},
		{"flag that is not looked at", "not looked at", func(b *Builder) {
			b.Raw("c").Do("rule", Match{L4: TCP().Flags(TCPFlags{Mask: FlagSYN, Set: FlagACK})}, Return{}, "reason")
		}},
		{"snat in output", "works in [input postrouting] only", func(b *Builder) {
			c := b.NAT("output")
			c.Entry(Output, Match{}, "reason")
			c.Do("rule", Match{Family: IPv4}, SNATTo{Addr: netip.MustParseAddr("10.0.0.1")}, "reason")
		}},
		{"keeps the source of both families", "set Match.Family", func(b *Builder) { b.NAT("c").Do("rule", Match{}, SNATTo{Keep: true}, "reason") }},
		{"keeps the source in output", "works in [input postrouting] only", func(b *Builder) {
			c := b.NAT("output")
			c.Entry(Output, Match{}, "reason")
			c.Do("rule", Match{Family: IPv4}, SNATTo{Keep: true}, "reason")
		}},
		{"keeps the source and rewrites it", "has an address or a port", func(b *Builder) {
			b.NAT("c").Do("rule", Match{Family: IPv4}, SNATTo{Addr: netip.MustParseAddr("10.0.0.1"), Keep: true}, "reason")
		}},
		{"dnat without family", "set Match.Family", func(b *Builder) {
			b.NAT("c").Do("rule", Match{}, DNATTo{Addr: netip.MustParseAddr("10.0.0.1")}, "reason")
		}},
		{"dnat to nowhere", "plain unicast address", func(b *Builder) { b.NAT("c").Do("rule", Match{}, DNATTo{}, "reason") }},
		{"dnat to a port without protocol", "needs a protocol", func(b *Builder) {
			b.NAT("c").Do("rule", Match{Family: IPv4}, DNATTo{netip.MustParseAddr("10.0.0.1"), 1}, "reason")
		}},
		{"log prefix with a quote", "not allowed at byte 0", func(b *Builder) { b.Raw("c").Do("rule", Match{}, Log{`"`}, "reason") }},
		{"pattern that is no beginning", "not allowed at byte 0", one(Match{Out: Is(Interfaces("*eth"))}, Return{})},
		{"live set of no family", "a live set has one family", func(b *Builder) { b.LiveSet("live", BothFamilies, "reason") }},
		{"fixed set of addresses", "only a live set", func(b *Builder) {
			b.objects = append(b.objects, Set{Name: "set", Family: IPv4, Addresses: true, Members: Prefixes(netip.MustParsePrefix("10.0.0.1/32")), Why: "reason"})
		}},
		{"policy rule of another family's prefix", "not of the rule's family", func(b *Builder) {
			b.PolicyRule(PolicyRule{ID: "r", Family: IPv4, Source: netip.MustParsePrefix("fd00::/8"), Priority: 1, Why: "reason"})
		}},
		{"policy rule with bits too many", "write 10.0.0.0/8", func(b *Builder) {
			b.PolicyRule(PolicyRule{ID: "r", Family: IPv4, Destination: netip.MustParsePrefix("10.0.0.1/8"), Priority: 1, Why: "reason"})
		}},
		{"policy rule of every address", "holds every address", func(b *Builder) {
			b.PolicyRule(PolicyRule{ID: "r", Family: IPv6, Source: netip.MustParsePrefix("::/0"), Priority: 1, Why: "reason"})
		}},
		{"policy rule of a pattern", "interface", func(b *Builder) {
			b.PolicyRule(PolicyRule{ID: "r", Family: IPv6, In: "eth*", Priority: 1, Why: "reason"})
		}},
		{"policy rule without selectors", "without a mark, a prefix or a link", func(b *Builder) {
			b.PolicyRule(PolicyRule{ID: "r", Family: IPv4, Table: 1, Priority: 1, Why: "reason"})
		}},
		{"policy rule for any packet of a link", "has no mark, prefix or link", func(b *Builder) {
			b.PolicyRule(PolicyRule{ID: "r", Family: IPv4, Any: true, In: "eth0", Table: 1, Priority: 1, Why: "reason"})
		}},
		{"policy rule that goes back", "a lower priority than that", func(b *Builder) {
			b.PolicyRule(PolicyRule{ID: "r", Family: IPv4, Any: true, Goto: 7, Priority: 7, Why: "reason"})
		}},
		{"policy rule with a table and a goto", "has no table", func(b *Builder) {
			b.PolicyRule(PolicyRule{ID: "r", Family: IPv4, Any: true, Goto: 8, Table: 1, Priority: 7, Why: "reason"})
		}},
		{"policy rule without family", "one family", func(b *Builder) {
			b.PolicyRule(PolicyRule{ID: "r", Mark: WholeMark(1), Table: 1, Priority: 1, Why: "reason"})
		}},
		{"policy rule without priority", "a priority of its own", func(b *Builder) {
			b.PolicyRule(PolicyRule{ID: "r", Family: IPv4, Mark: WholeMark(1), Table: 1, Why: "reason"})
		}},
		{"route with bits too many", "bits beyond its length", func(b *Builder) {
			b.Route(Route{ID: "r", Destination: netip.MustParsePrefix("10.0.0.1/8"), Device: "lo", Why: "reason"})
		}},
		{"local route by a gateway", "a gateway goes with", func(b *Builder) {
			b.Route(Route{
				ID: "r", Type: RouteLocal, Destination: netip.MustParsePrefix("10.0.0.0/8"), Device: "lo",
				Gateway: netip.MustParseAddr("10.0.0.1"), Why: "reason",
			})
		}},
		{"gateway with a zone", "the gateway fe80::1%eth0 is not a plain address: write fe80::1", func(b *Builder) {
			b.Route(Route{
				ID: "r", Destination: netip.MustParsePrefix("fd00::/64"), Device: "eth0", Gateway: netip.MustParseAddr("fe80::1%eth0"), Why: "reason",
			})
		}},
		{"gateway of IPv4 in IPv6", "the gateway ::ffff:10.0.0.1 is not a plain address: write 10.0.0.1", func(b *Builder) {
			b.Route(Route{
				ID: "r", Destination: netip.MustParsePrefix("fd00::/64"), Device: "eth0", Gateway: netip.MustParseAddr("::ffff:10.0.0.1"), Why: "reason",
			})
		}},
		{"unreachable route by a device", "sends nothing", func(b *Builder) {
			b.Route(Route{ID: "r", Type: RouteUnreachable, Destination: netip.MustParsePrefix("10.0.0.0/8"), Device: "eth0", Why: "reason"})
		}},
		{"route of an unknown type", "route type 5 is unknown", func(b *Builder) {
			b.Route(Route{ID: "r", Type: RouteThrow + 1, Destination: netip.MustParsePrefix("10.0.0.0/8"), Why: "reason"})
		}},
		{"onlink without a gateway", "onlink is about a gateway", func(b *Builder) {
			b.Route(Route{ID: "r", Destination: netip.MustParsePrefix("10.0.0.0/8"), Device: "eth0", OnLink: true, Why: "reason"})
		}},
		{"preferred source of another family", "a preferred source goes with", func(b *Builder) {
			b.Route(Route{
				ID: "r", Destination: netip.MustParsePrefix("10.0.0.0/8"), Device: "eth0", Source: netip.MustParseAddr("fd00::1"), Why: "reason",
			})
		}},
		{"preferred source of a local route", "a preferred source goes with", func(b *Builder) {
			b.Route(Route{
				ID: "r", Type: RouteLocal, Destination: netip.MustParsePrefix("10.0.0.0/8"), Device: "lo", Source: netip.MustParseAddr("10.0.0.1"),
				Why: "reason",
			})
		}},
		{"preferred source of a group", "no unicast address", func(b *Builder) {
			b.Route(Route{
				ID: "r", Destination: netip.MustParsePrefix("10.0.0.0/8"), Device: "eth0", Source: netip.MustParseAddr("224.0.0.1"), Why: "reason",
			})
		}},
		{"preferred source of IPv4 in IPv6", "the preferred source ::ffff:10.0.0.1 is not a plain address: write 10.0.0.1", func(b *Builder) {
			b.Route(Route{
				ID: "r", Destination: netip.MustParsePrefix("fd00::/64"), Device: "eth0", Source: netip.MustParseAddr("::ffff:10.0.0.1"), Why: "reason",
			})
		}},
		{"route by no device", "interface", func(b *Builder) {
			b.Route(Route{ID: "r", Destination: netip.MustParsePrefix("10.0.0.0/8"), Why: "reason"})
		}},
		{"address of nothing", "not a plain one", func(b *Builder) { b.Address(Address{ID: "a", Device: "lo", Why: "reason"}) }},
		{"sysctl elsewhere", "is not a path", func(b *Builder) { b.Sysctl(Sysctl{ID: "s", Key: "../kernel/panic", Why: "reason"}) }},
		{"sysctl without a path", "is not a path", func(b *Builder) { b.Sysctl(Sysctl{ID: "s", Key: "route_localnet", Why: "reason"}) }},
		{"tunnel to nowhere", "far end", func(b *Builder) { b.Link(Link{ID: "l", Name: "tun0", Geneve: &Geneve{}, Why: "reason"}) }},
		{"tunnel to a zone", "the far end fe80::1%eth0 is not a plain address: write fe80::1", func(b *Builder) {
			b.Link(Link{ID: "l", Name: "tun0", Geneve: &Geneve{Remote: netip.MustParseAddr("fe80::1%eth0"), Port: 6081}, Why: "reason"})
		}},
		{"tunnel to IPv4 in IPv6", "the far end ::ffff:10.0.0.1 is not a plain address: write 10.0.0.1", func(b *Builder) {
			b.Link(Link{ID: "l", Name: "tun0", Geneve: &Geneve{Remote: netip.MustParseAddr("::ffff:10.0.0.1"), Port: 6081}, Why: "reason"})
		}},
		{"tunnel with a long id", "24 bits", func(b *Builder) {
			b.Link(Link{ID: "l", Name: "tun0", Geneve: &Geneve{VNI: 1 << 24}, Why: "reason"})
		}},
		{"tunnel to a group", "no unicast address", func(b *Builder) {
			b.Link(Link{ID: "l", Name: "tun0", VXLAN: &VXLAN{VNI: 1, Remote: netip.MustParseAddr("ff02::1"), Port: 4789}, Why: "reason"})
		}},
		{"link of two kinds", "of one kind", func(b *Builder) {
			b.Link(Link{ID: "l", Name: "tun0", VXLAN: &VXLAN{}, Veth: &Veth{}, Why: "reason"})
		}},
		{"pair into no namespace", "label", func(b *Builder) {
			b.Link(Link{ID: "l", Name: "in0", Veth: &Veth{Peer: "in1"}, Why: "reason"})
		}},
		{"small MTU", "MTU 67", func(b *Builder) { b.Link(Link{ID: "l", Name: "tun0", MTU: 67, Why: "reason"}) }},
		{"short hardware address", `"02:00:00:00:00" is not one of Ethernet`, func(b *Builder) {
			b.Link(Link{ID: "l", Name: "tun0", HardwareAddr: "02:00:00:00:00", Why: "reason"})
		}},
		{"long hardware address", "is not one of Ethernet", func(b *Builder) {
			b.Link(Link{ID: "l", Name: "tun0", HardwareAddr: "02:00:00:00:00:00:00:01", Why: "reason"})
		}},
		{"hardware address in another form", "is not one of Ethernet", func(b *Builder) {
			b.Link(Link{ID: "l", Name: "tun0", HardwareAddr: "0200.0000.0001", Why: "reason"})
		}},
		{"hardware address of a group", "01:00:00:00:00:01 is one of a group", func(b *Builder) {
			b.Link(Link{ID: "l", Name: "tun0", HardwareAddr: "01:00:00:00:00:01", Why: "reason"})
		}},
		{"two links of a name", "same name", func(b *Builder) {
			b.Link(Link{ID: "l", Name: "a", Why: "reason"})
			b.Link(Link{ID: "m", Name: "a", Why: "reason"})
		}},
		{"two objects of an id", "same id", func(b *Builder) {
			b.Link(Link{ID: "l", Name: "a", Why: "reason"})
			b.Link(Link{ID: "l", Name: "b", Why: "reason"})
		}},
		{"owner in an entry's match", "no owner is known in prerouting", func(b *Builder) {
			b.NAT("inbound").Entry(Prerouting, Match{UID: Is(UIDs(1))}, "reason")
		}},
		{"hook that the table has not", "table raw has no hook input", func(b *Builder) { b.Raw("in").Entry(Input, Match{}, "reason") }},
		{"circle", "calls itself", func(b *Builder) {
			one, two := b.NAT("one"), b.NAT("two")
			one.Call("there", Match{}, two, "reason")
			two.Call("back", Match{}, one, "reason")
		}},
		{"too deep", "more than 15 deep", func(b *Builder) {
			last := b.NAT("start")
			for _, name := range strings.Split("abcdefghijklmno", "") {
				next := b.NAT(ChainName(name))
				last.Call(RuleID("to-"+name), Match{}, next, "reason")
				last = next
			}
		}},
		{"chain twice", "same name", func(b *Builder) { b.NAT("one"); b.NAT("one") }},
		{"rule twice", "same id", func(b *Builder) {
			b.NAT("one").Do("rule", Match{}, Return{}, "reason")
			b.NAT("two").Do("rule", Match{}, Return{}, "reason")
		}},
		{"set twice", "same name", func(b *Builder) { b.Set("one", v4, "reason"); b.Set("one", v4, "reason") }},
		{"set of both families", "one family", func(b *Builder) { b.Set("one", v4.Union(v6), "reason") }},
		{"set without members", "one family", func(b *Builder) { b.Set("one", PrefixSet{}, "reason") }},
		{"chain with a capital", "not allowed at byte 0", func(b *Builder) { b.NAT("Output") }},
		{"chain too long", "15 bytes", func(b *Builder) { b.NAT("fifteen-letters") }},
		{"id with a blank", "not allowed at byte 4", func(b *Builder) { b.NAT("one").Do("rule 1", Match{}, Return{}, "reason") }},
		{"no reason", "reason", func(b *Builder) { b.NAT("one").Do("rule", Match{}, Return{}, "") }},
		{"reason with a quote", "not allowed at byte 3", func(b *Builder) { b.NAT("one").Do("rule", Match{}, Return{}, `not" so`) }},
		{"reason with a newline", "not allowed at byte 3", func(b *Builder) { b.NAT("one").Do("rule", Match{}, Return{}, "not\nso") }},
		{"reason too long", "77 bytes", func(b *Builder) { b.NAT("one").Do("rule", Match{}, Return{}, strings.Repeat("a", 77)) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			plan, err := Build("test-mesh", tc.fill)
			var refused *PlanError
			if !errors.As(err, &refused) || !errors.Is(err, ErrPlan) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Build = %v, want a PlanError that says %q", err, tc.want)
			}
			if plan != nil {
				t.Errorf("Build gives a plan beside its error:\n%s", plan)
			}
		})
	}
}

func TestBuildRefusesAJumpIntoAnotherPlan(t *testing.T) {
	t.Parallel()
	var elsewhere *ChainRef[NATAction]
	if _, err := Build("test-mesh", func(b *Builder) { elsewhere = b.NAT("same-name") }); err != nil {
		t.Fatal(err)
	}
	_, err := Build("test-mesh", func(b *Builder) {
		b.NAT("same-name")
		b.NAT("caller").Call("call", Match{}, elsewhere, "reason")
	})
	if !errors.Is(err, ErrPlan) {
		t.Errorf("Build = %v, want ErrPlan", err)
	}
}

func TestBuildReportsEveryMistake(t *testing.T) {
	t.Parallel()
	_, err := Build("alone", func(b *Builder) {
		b.NAT("one").Do("rule", Match{L4: TCP()}, RedirectTo{}, "")
	})
	for _, part := range []string{"owner", "port 0", "reason"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("Build = %v, which does not speak of %q", err, part)
		}
	}
}

// TestValidateRefusesPlansMadeByHand has mistakes that the builder cannot make.
func TestValidateRefusesPlansMadeByHand(t *testing.T) {
	t.Parallel()
	rule := func(kind TableKind, action Action) *Plan {
		return &Plan{Owner: "test-mesh", Objects: []Object{Table{Kind: kind, Chains: []Chain{{
			Name: "one", Rules: []Rule{{ID: "rule", Match: Match{L4: TCP()}, Action: action, Why: "reason"}},
		}}}}}
	}
	for name, plan := range map[string]*Plan{
		"drop in nat":                  rule(NAT, Drop{}),
		"redirect in mangle":           rule(Mangle, RedirectTo{1}),
		"table of no kind":             rule(0, Return{}),
		"two tables of a kind":         {Owner: "test-mesh", Objects: []Object{Table{Kind: NAT}, Table{Kind: NAT}}},
		"jump to nowhere":              rule(NAT, Jump{Chain: "two"}),
		"entry into nowhere":           {Owner: "test-mesh", Objects: []Object{Table{Kind: NAT, Entries: []Entry{{ID: "e", Hook: Output, Chain: "x", Why: "reason"}}}}},
		"set whose family is mistaken": {Owner: "test-mesh", Objects: []Object{Set{Name: "one", Family: IPv6, Members: AllPrefixes().Of(IPv4), Why: "reason"}}},
	} {
		if err := plan.Validate(); !errors.Is(err, ErrPlan) {
			t.Errorf("%s: Validate = %v, want ErrPlan", name, err)
		}
	}
}

func TestPlanText(t *testing.T) {
	t.Parallel()
	plan, err := Build("test-mesh", func(b *Builder) {
		set := b.Set("partners", Prefixes(netip.MustParsePrefix("192.0.2.0/24")), "who may pass", Source{SourceAnnotation, "k", "v"})
		tail := b.Filter("tail")
		head := b.Filter("head")
		head.Entry(Input, Match{Family: IPv4}, "what comes in")
		head.Do("partners", Match{In: Not(Interfaces("lo")), SrcSet: Is(set)}, Accept{}, "partners may pass")
		head.Call("rest", Match{L4: UDP().From(Ports(53)).NotTo(PortRange(1, 1023))}, tail, "see there")
		tail.Do("drop", Match{}, Drop{}, "nobody else")
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = `plan test-mesh
set partners v4: 192.0.2.0/24  # who may pass
      from annotation k="v"
table filter
  hook input: v4 -> jump head  # filter.input.head: what comes in
  chain tail
    any -> drop  # drop: nobody else
  chain head
    in != lo src @partners -> accept  # partners: partners may pass
    udp sport 53 dport != 1-1023 -> jump tail  # rest: see there
`
	if got := plan.String(); got != want {
		t.Errorf("String() =\n%s\nwant\n%s", got, want)
	}
}

// TestLongestCommentFitsTheKernel uses the longest id and reason that Build accepts.
func TestLongestCommentFitsTheKernel(t *testing.T) {
	t.Parallel()
	longest := Rule{ID: RuleID(strings.Repeat("a", maxRuleID)), Action: Return{}, Why: strings.Repeat("b", maxWhy)}
	if comment := longest.Comment(); len(comment) > 128 {
		t.Errorf("the longest comment has %d bytes", len(comment))
	}
}

// Nothing changes a plan that has been validated: neither a chain that is kept, nor what was given.
func TestBuildSharesNothing(t *testing.T) {
	t.Parallel()
	from := []Source{{SourceAnnotation, "key", "value"}}
	geneve := &Geneve{VNI: 1, Remote: netip.MustParseAddr("192.0.2.1"), Port: 6081}
	vxlan := &VXLAN{VNI: 1, Remote: netip.MustParseAddr("192.0.2.1"), Port: 4789}
	veth := &Veth{Peer: "in1", Namespace: "proxy"}
	var kept *ChainRef[NATAction]
	plan, err := Build("test-mesh", func(b *Builder) {
		b.Link(Link{ID: "geneve", Name: "tun0", Geneve: geneve, Why: "why", From: from})
		b.Link(Link{ID: "vxlan", Name: "tun1", VXLAN: vxlan, Why: "why"})
		b.Link(Link{ID: "veth", Name: "in0", Veth: veth, Why: "why"})
		b.Sysctl(Sysctl{ID: "sysctl", Key: "ipv4/ip_forward", Value: 1, Why: "why", From: from})
		b.Set("set", Prefixes(netip.MustParsePrefix("10.0.0.0/8")), "why", from...)
		kept = b.NAT("a")
		kept.Entry(Output, Match{}, "why")
		for _, id := range []RuleID{"r1", "r2", "r3"} { // room for a fourth one, in what append makes
			kept.Do(id, Match{}, Return{}, "why", from...)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	before, err := plan.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	from[0].Value, geneve.VNI, vxlan.VNI, veth.Peer = "other", 7, 7, "other"
	kept.Do("r4", Match{}, Return{}, "why")
	kept.Entry(Prerouting, Match{}, "why")
	if after, err := plan.MarshalJSON(); err != nil || string(after) != string(before) {
		t.Errorf("the plan was\n%s\nand is now\n%s, %v", before, after, err)
	}
}
