// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// Plan returns a valid plan of some tables, with all of their hooks and kinds of rules, and with
// everything else that decides about the packets of [World].
func Plan(c Choices, owner interception.Owner, kinds ...interception.TableKind) *interception.Plan {
	g := NewGenerator(c)
	live := interception.Set{Name: "live", Family: interception.IPv4, Live: true, Why: "why"}
	g.sets = append(g.sets, interception.SetRef{Name: live.Name, Family: live.Family})
	g.offsets = []int32{0, 0, 0, -5, 5, -160, 160}
	plan := g.rules(owner, kinds)
	bit := interception.MarkBits{Value: 1, Mask: 3}
	plan.Objects = append([]interception.Object{
		live,
		interception.Route{
			ID: "route.v4", Type: interception.RouteLocal, Destination: netip.MustParsePrefix("0.0.0.0/0"), Device: "lo", Table: 133, Why: "why",
		},
		interception.Route{
			ID: "route.v6", Type: interception.RouteLocal, Destination: netip.MustParsePrefix("::/0"), Device: "lo", Table: 133, Why: "why",
		},
		interception.PolicyRule{
			ID: "rule.v4", Family: interception.IPv4, Mark: interception.WholeMark(1), Table: 133, Priority: 1, Why: "why",
		},
		interception.PolicyRule{ID: "rule.v6", Family: interception.IPv6, Mark: bit, Table: 133, Priority: 1, Why: "why"},
	}, slices.Concat(g.routes(), g.policyRules(), plan.Objects)...)
	return plan
}

// routes returns at most two routes of any type, in the tables that a packet may find. Their ids
// begin with [RandomRoute].
func (g Generator) routes() []interception.Object {
	var routes []interception.Object
	for i := range g.Choices(3) {
		family := Pick(g.Choices, interception.IPv4, interception.IPv6)
		r := interception.Route{
			ID: interception.RuleID(fmt.Sprintf("%s%d", RandomRoute, i)), Destination: g.part(family), Why: "why",
			Table: Pick[interception.RoutingTable](g.Choices, 0, 133), Metric: Pick[uint32](g.Choices, 0, 0, 5, 2000),
			Type: Pick(g.Choices, interception.RouteUnicast, interception.RouteLocal, interception.RouteUnreachable,
				interception.RouteBlackhole, interception.RouteThrow),
		}
		switch r.Type {
		case interception.RouteUnicast:
			r.Device = "eth0"
			own := map[interception.Family]string{interception.IPv4: "10.244.0.2", interception.IPv6: "fd00:10:244::2"}[family]
			r.Source = Pick(g.Choices, netip.Addr{}, netip.MustParseAddr(own))
		case interception.RouteLocal:
			r.Device = "lo"
		case interception.RouteUnreachable, interception.RouteBlackhole, interception.RouteThrow:
		}
		routes = append(routes, r)
	}
	return routes
}

// RandomRoute begins the ids of random routes.
const RandomRoute interception.RuleID = "route.random."

// part returns a prefix of some destinations.
func (g Generator) part(family interception.Family) netip.Prefix {
	addr := netip.MustParseAddr(Pick(g.Choices, destinations(family)...))
	return netip.PrefixFrom(addr, Pick(g.Choices, 1, 8, addr.BitLen())).Masked()
}

// policyRules returns at most two policy rules with any selectors, to any of the tables that a
// packet may find.
func (g Generator) policyRules() []interception.Object {
	var rules []interception.Object
	for i := range g.Choices(3) {
		family := Pick(g.Choices, interception.IPv4, interception.IPv6)
		r := interception.PolicyRule{
			ID: interception.RuleID(fmt.Sprintf("rule.%d", i)), Family: family, Why: "why",
			Table: Pick[interception.RoutingTable](g.Choices, 0, 133, 255), Priority: uint32(1 + g.Choices(2)),
		}
		if to := Pick[uint32](g.Choices, 0, 0, 2, 3, 32766, 32767); to > r.Priority {
			r.Table, r.Goto = 0, to
		}
		switch g.Choices(5) {
		case 0:
			r.Source = g.part(family)
		case 1:
			r.Destination = g.part(family)
		case 2:
			r.In = Pick[interception.Interface](g.Choices, "lo", "eth0")
		case 3:
			r.Source, r.In, r.Mark = g.part(family), Pick[interception.Interface](g.Choices, "", "lo"), g.Mark()
		case 4:
			r.Any = true
		}
		rules = append(rules, r)
	}
	return rules
}

// Rules returns a valid plan of all tables, with all kinds of rules, that every renderer can
// express: it has nothing but tables and fixed sets, and its entries have no offsets.
func Rules(c Choices, owner interception.Owner) *interception.Plan {
	return NewGenerator(c).rules(owner, interception.TableKinds())
}

// Generator makes parts of a plan.
type Generator struct {
	Choices
	sets    []interception.SetRef
	offsets []int32 // of entries
}

// NewGenerator returns a generator whose plans have the sets "four" and "six".
func NewGenerator(c Choices) Generator {
	sets := []interception.SetRef{{Name: "four", Family: interception.IPv4}, {Name: "six", Family: interception.IPv6}}
	return Generator{c, sets, []int32{0}}
}

// rules returns a plan of the fixed sets and tables.
func (g Generator) rules(owner interception.Owner, kinds []interception.TableKind) *interception.Plan {
	plan := &interception.Plan{Owner: owner}
	for _, ref := range g.sets[:2] {
		members := Prefixes(g.Choices, ref.Family).Union(Prefixes(g.Choices, ref.Family))
		plan.Objects = append(plan.Objects, interception.Set{Name: ref.Name, Family: ref.Family, Members: members, Why: "why"})
	}
	for _, kind := range kinds {
		table := interception.Table{Kind: kind}
		for _, hook := range subset(g.Choices, kind.Hooks()...) {
			g.addChains(&table, hook)
		}
		plan.Objects = append(plan.Objects, table)
	}
	return plan
}

// addChains adds one to three chains that are reached from the hook: by an entry or by a jump from
// the previous chain.
func (g Generator) addChains(table *interception.Table, hook interception.Hook) {
	first := len(table.Chains)
	for i := range 1 + g.Choices(3) {
		chain := interception.Chain{Name: interception.ChainName(fmt.Sprintf("%s-%d", hook.String()[:5], i))}
		for j := range g.Choices(4) {
			id := interception.RuleID(fmt.Sprintf("%s.%s.%d", table.Kind, chain.Name, j))
			match := g.Match(table.Kind, hook)
			chain.Rules = append(chain.Rules, interception.Rule{ID: id, Match: match, Action: g.action(table.Kind, hook, match), Why: "why"})
		}
		if i > 0 {
			caller := &table.Chains[first+i-1]
			id := interception.RuleID(fmt.Sprintf("%s.%s.jump", table.Kind, caller.Name))
			jump := interception.Jump{Chain: chain.Name}
			caller.Rules = append(caller.Rules, interception.Rule{ID: id, Match: g.Match(table.Kind, hook), Action: jump, Why: "why"})
		}
		table.Chains = append(table.Chains, chain)
	}
	for i, chain := range table.Chains[first:] {
		if i > 0 && g.Choices(3) > 0 {
			continue
		}
		id := interception.RuleID(fmt.Sprintf("%s.%s.%s", table.Kind, hook, chain.Name))
		offset := Pick(g.Choices, g.offsets...)
		table.Entries = append(table.Entries, interception.Entry{
			ID: id, Hook: hook, Offset: offset, Match: g.Match(table.Kind, hook), Chain: chain.Name, Why: "why",
		})
	}
}

// action returns an action that the table, the hook and the match allow.
func (g Generator) action(kind interception.TableKind, hook interception.Hook, match interception.Match) interception.Action {
	actions := []interception.Action{
		interception.Accept{},
		interception.Return{},
		interception.Return{},
		interception.Log{Prefix: Pick(g.Choices, "-", "a (random) prefix, a.b/c:")},
	}
	if kind != interception.NAT {
		actions = append(actions, interception.Drop{})
	}
	switch mark, mask := g.Mark(), interception.Mark(g.Choices(3)*0xff); kind {
	case interception.Raw:
		zone := interception.SetZone{Zone: 1, Direction: interception.Direction(g.Choices(3))}
		actions = append(actions, interception.NoTrack{}, zone, interception.SetZone{})
	case interception.Mangle:
		actions = append(actions, interception.SetMark{Mark: mark}, interception.SetMark{Mark: mark}, interception.SaveMark{Mask: mask},
			interception.SaveMark{}, interception.RestoreMark{Mask: mask}, interception.SetConnMark{Mark: mark})
		if hook == interception.Prerouting && match.L4.Protocol() != interception.AnyProtocol {
			proxy := interception.TProxyTo{Port: Pick[interception.Port](g.Choices, 15001, 15006), Mark: mark}
			actions = append(actions, proxy, proxy, proxy, proxy)
		}
	case interception.NAT:
		for range 4 {
			actions = append(actions, g.translations(hook, match)...)
		}
	case interception.Filter:
		actions = append(actions, interception.Reject{}, interception.Reject{})
	}
	return Pick(g.Choices, actions...)
}

// translations returns the address translations that the hook and the match allow.
func (g Generator) translations(hook interception.Hook, match interception.Match) []interception.Action {
	source := hook == interception.Input || hook == interception.Postrouting
	port := interception.Port(0)
	var allowed []interception.Action
	if match.L4.Protocol() != interception.AnyProtocol {
		port = Pick[interception.Port](g.Choices, 0, 8080)
		if !source {
			allowed = append(allowed, interception.RedirectTo{Port: Pick[interception.Port](g.Choices, 15001, 15006)})
		}
	}
	if family := match.EffectiveFamily(); family != interception.BothFamilies {
		addr := netip.MustParseAddr(Pick(g.Choices, destinations(family)...))
		if source {
			return append(allowed, interception.SNATTo{Addr: addr, Port: port}, interception.SNATTo{Keep: true})
		}
		allowed = append(allowed, interception.DNATTo{Addr: addr, Port: port})
	}
	return allowed
}

// Match returns a match that sometimes has each of the conditions known in the table and the hook.
func (g Generator) Match(kind interception.TableKind, hook interception.Hook) interception.Match {
	var m interception.Match
	family := Pick(g.Choices, interception.IPv4, interception.IPv6)
	if g.Choices(2) == 0 {
		m.L4 = g.L4()
	}
	g.sometimes(func() { m.Family = family })
	g.sometimes(func() { m.Src = condition(g.Choices, Prefixes(g.Choices, family)) })
	g.sometimes(func() { m.Dst = condition(g.Choices, Prefixes(g.Choices, family)) })
	sets := slices.DeleteFunc(slices.Clone(g.sets), func(s interception.SetRef) bool { return s.Family != family })
	g.sometimes(func() { m.SrcSet = condition(g.Choices, Pick(g.Choices, sets...)) })
	g.sometimes(func() { m.DstSet = condition(g.Choices, Pick(g.Choices, sets...)) })
	g.sometimes(func() { m.Mark = condition(g.Choices, g.Mark()) })
	if kind != interception.Raw { // which comes before connection tracking
		g.sometimes(func() { m.ConnMark = condition(g.Choices, g.Mark()) })
		g.sometimes(func() { m.State = condition(g.Choices, interception.ConnState(1+g.Choices(31))) })
		g.sometimes(func() { m.Direction = Pick(g.Choices, interception.DirectionOriginal, interception.DirectionReply) })
	}
	if hook <= interception.Forward {
		g.sometimes(func() { m.In = condition(g.Choices, g.links()) })
	}
	if hook >= interception.Forward {
		g.sometimes(func() { m.Out = condition(g.Choices, g.links()) })
	}
	if hook > interception.Forward {
		g.sometimes(func() { m.UID = condition(g.Choices, interception.UIDs(numbers[interception.UID](g.Choices, 4)...)) })
		g.sometimes(func() {
			m.GID = condition(g.Choices, interception.GIDs(numbers[interception.GID](g.Choices, Pick(g.Choices, 2, 30))...))
		})
	}
	return m
}

func (g Generator) sometimes(do func()) {
	if g.Choices(10) == 0 {
		do()
	}
}

// Mark returns a mark that random packets may have, or any.
func (g Generator) Mark() interception.MarkBits {
	mask := Pick[interception.Mark](g.Choices, 1, 0xff, 0xff00, 0xffffffff)
	return interception.MarkBits{Value: interception.Mark(Pick(g.Choices, 0, 1, 2, g.Choices(1<<31-1))) & mask, Mask: mask}
}

func (g Generator) links() interception.InterfaceSet {
	names := subset[interception.Interface](g.Choices, "lo", "eth0", "eth*", "eth0*", "net1.4000", "fourteen-lett*")
	return interception.Interfaces(append(names[:min(len(names), 2)], Pick[interception.Interface](g.Choices, "lo", "eth0"))...)
}

// L4 returns a protocol, usually with further conditions.
func (g Generator) L4() interception.L4 {
	l := interception.TCP()
	switch g.Choices(6) {
	case 0, 3:
		l = interception.UDP()
	case 1:
		l = l.Flags(interception.Opening())
	case 2:
		l = l.NotFlags(Pick(g.Choices, interception.Opening(), interception.TCPFlags{Mask: interception.FlagRST | interception.FlagPSH}))
	}
	switch ports := g.ports(); g.Choices(10) {
	case 0:
		l = l.To(ports)
	case 1:
		l = l.NotTo(ports)
	case 2:
		l = l.From(ports)
	case 3:
		l = l.NotFrom(ports).To(g.ports())
	case 4:
		l = l.From(ports).NotTo(g.ports())
	}
	return l
}

func (g Generator) ports() interception.PortSet {
	if g.Choices(20) == 1 {
		return interception.AllPorts()
	}
	return interception.Ports(numbers[interception.Port](g.Choices, Pick(g.Choices, 1, 4, 40, 400))...)
}

// numbers returns ascending numbers, some of them neighbours, and some at an end. Ids are small:
// tests have no others.
func numbers[N ~uint16 | ~uint32](c Choices, most int) []N {
	list := []N{Pick[N](c, 0, 80, Application, Proxy, 8080, 60000)}
	for range c(most) {
		list = append(list, list[len(list)-1]+N(1+c(3)))
	}
	return list
}

// condition returns Is or Not.
func condition[S interception.Operand](c Choices, set S) interception.Condition[S] {
	return Pick(c, interception.Is[S], interception.Not[S])(set)
}

// destinations are those of random packets; random prefixes are around them.
func destinations(family interception.Family) []string {
	if family == interception.IPv4 {
		return []string{"127.0.0.1", "127.0.0.6", "10.244.0.2", "10.244.0.9", "192.0.2.1", "198.51.100.1"}
	}
	return []string{"::1", "::6", "fd00:10:244::2", "fd00:10:244::9", "2001:db8::1", "2001:db8:1::1"}
}

// Address returns a destination, or an address near one.
func Address(c Choices, family interception.Family) netip.Addr {
	addr := netip.MustParseAddr(Pick(c, destinations(family)...))
	return Pick(c, addr, addr, addr.Next(), addr.Prev())
}

// Prefixes returns at least one prefix, all of one family.
func Prefixes(c Choices, family interception.Family) interception.PrefixSet {
	var prefixes []netip.Prefix
	for range 1 + c(3) {
		addr := Address(c, family)
		prefixes = append(prefixes, netip.PrefixFrom(addr, Pick(c, 8, 24, addr.BitLen(), c(addr.BitLen()+1))))
	}
	return interception.Prefixes(prefixes...)
}

// subset returns a random part of the elements, in their order.
func subset[T any](c Choices, from ...T) []T {
	var kept []T
	for _, element := range from {
		if c(2) == 0 {
			kept = append(kept, element)
		}
	}
	return kept
}
