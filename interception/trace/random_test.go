// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"fmt"
	"net/netip"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
	"github.com/meshcni/meshcni/internal/sample"
)

// choices makes every random decision of the tests.
type choices = sample.Choices

func seeded(seed uint64) choices { return sample.Seeded(seed) }

func pick[T any](c choices, from ...T) T { return sample.Pick(c, from...) }

// some is a random part of the elements, in their order.
func some[T any](c choices, from ...T) []T {
	var kept []T
	for _, element := range from {
		if c(2) == 0 {
			kept = append(kept, element)
		}
	}
	return kept
}

// randomPlan is a plan of some tables, with all hooks and kinds of rules that they have. It is valid.
func randomPlan(c choices, owner interception.Owner, kinds ...interception.TableKind) *interception.Plan {
	plan := &interception.Plan{Owner: owner, Objects: []interception.Object{
		interception.Set{Name: "four", Family: interception.IPv4, Members: randomPrefixes(c, interception.IPv4), Why: "why"},
		interception.Set{Name: "six", Family: interception.IPv6, Members: randomPrefixes(c, interception.IPv6), Why: "why"},
		interception.Set{Name: "live", Family: interception.IPv4, Live: true, Why: "why"},
		interception.Route{ID: "route.v4", Type: interception.RouteLocal, Destination: addresses("0.0.0.0/0")[0], Device: "lo", Table: 133, Why: "why"},
		interception.Route{ID: "route.v6", Type: interception.RouteLocal, Destination: addresses("::/0")[0], Device: "lo", Table: 133, Why: "why"},
		interception.PolicyRule{ID: "rule.v4", Family: interception.IPv4, Mark: whole(1), Table: 133, Priority: 1, Why: "why"},
		interception.PolicyRule{ID: "rule.v6", Family: interception.IPv6, Mark: marked(1, 3), Table: 133, Priority: 1, Why: "why"},
	}}
	for _, kind := range kinds {
		table := interception.Table{Kind: kind}
		for _, hook := range some(c, kind.Hooks()...) {
			addChains(c, &table, hook)
		}
		plan.Objects = append(plan.Objects, table)
	}
	return plan
}

// addChains adds one to three chains that are reached from the hook: by an entry or by a jump from the one before.
func addChains(c choices, table *interception.Table, hook interception.Hook) {
	first := len(table.Chains)
	for i := range 1 + c(3) {
		chain := interception.Chain{Name: interception.ChainName(fmt.Sprintf("%s-%d", hook.String()[:5], i))}
		for j := range c(4) {
			id := interception.RuleID(fmt.Sprintf("%s.%s.%d", table.Kind, chain.Name, j))
			match := randomMatch(c, table.Kind, hook)
			chain.Rules = append(chain.Rules, interception.Rule{ID: id, Match: match, Action: randomAction(c, table.Kind, hook, match), Why: "why"})
		}
		if i > 0 {
			caller := &table.Chains[first+i-1]
			id := interception.RuleID(fmt.Sprintf("%s.%s.jump", table.Kind, caller.Name))
			caller.Rules = append(caller.Rules, interception.Rule{ID: id, Match: randomMatch(c, table.Kind, hook), Action: interception.Jump{Chain: chain.Name}, Why: "why"})
		}
		table.Chains = append(table.Chains, chain)
	}
	for i, chain := range table.Chains[first:] {
		if i > 0 && c(3) > 0 {
			continue
		}
		id := interception.RuleID(fmt.Sprintf("%s.%s.%s", table.Kind, hook, chain.Name))
		table.Entries = append(table.Entries, interception.Entry{ID: id, Hook: hook, Match: randomMatch(c, table.Kind, hook), Chain: chain.Name, Why: "why"})
	}
}

func randomAction(c choices, kind interception.TableKind, hook interception.Hook, match interception.Match) interception.Action {
	if c(3) == 0 {
		return pick[interception.Action](c, interception.Return{}, interception.Accept{}, interception.Log{Prefix: "seen"})
	}
	mark := pick(c, whole(1), whole(2), marked(1, 1), marked(0, 1))
	switch kind {
	case interception.Raw:
		return pick[interception.Action](c, interception.Drop{}, interception.NoTrack{}, interception.SetZone{Zone: 1}, interception.SetZone{})
	case interception.Mangle:
		if hook == interception.Prerouting && match.L4.Protocol() != interception.AnyProtocol && c(2) == 0 {
			return interception.TProxyTo{Port: pick[interception.Port](c, 15001, 15006), Mark: mark}
		}
		return pick[interception.Action](c, interception.Drop{}, interception.SetMark{Mark: mark}, interception.SetMark{Mark: mark},
			interception.SaveMark{}, interception.SaveMark{Mask: 2}, interception.RestoreMark{}, interception.SetConnMark{Mark: mark})
	case interception.NAT:
		return randomTranslation(c, hook, match)
	case interception.Filter:
	}
	return pick[interception.Action](c, interception.Drop{}, interception.Reject{}, interception.Accept{})
}

// randomTranslation is one that the match allows, and Return when it allows none.
func randomTranslation(c choices, hook interception.Hook, match interception.Match) interception.Action {
	source := hook == interception.Input || hook == interception.Postrouting
	transport := match.L4.Protocol() != interception.AnyProtocol
	if !source && transport && c(2) == 0 {
		return interception.RedirectTo{Port: pick[interception.Port](c, 15001, 15006)}
	}
	family := match.EffectiveFamily()
	if family == interception.BothFamilies {
		return interception.Return{}
	}
	addr, port := netip.MustParseAddr(pick(c, destinations(family)...)), interception.Port(0)
	if transport {
		port = pick[interception.Port](c, 0, 8080)
	}
	if source {
		return interception.SNATTo{Addr: addr, Port: port}
	}
	return interception.DNATTo{Addr: addr, Port: port}
}

// randomMatch is a match that the table and the hook allow, more often wide than narrow.
func randomMatch(c choices, kind interception.TableKind, hook interception.Hook) interception.Match {
	match := interception.Match{L4: randomL4(c)}
	inward := hook == interception.Prerouting || hook == interception.Input
	links := condition(c, interception.Interfaces(pick[interception.Interface](c, "lo", "eth0", "eth*")))
	switch c(9) {
	case 0, 1:
		match.Family = pick(c, interception.IPv4, interception.IPv6)
	case 2:
		match.Dst = condition(c, randomPrefixes(c, pick(c, interception.IPv4, interception.IPv6)))
	case 3:
		match.SrcSet = condition(c, pick(c,
			interception.SetRef{Name: "four", Family: interception.IPv4}, interception.SetRef{Name: "six", Family: interception.IPv6},
			interception.SetRef{Name: "live", Family: interception.IPv4}))
	case 4:
		if inward {
			match.In = links
		} else {
			match.Out = links
		}
	case 5:
		if hook == interception.Output || hook == interception.Postrouting {
			match.UID = condition(c, interception.UIDs(pick(c, application, proxy)))
		}
	case 6:
		match.Mark = condition(c, pick(c, whole(0), whole(1), marked(1, 1)))
	case 7:
		if kind != interception.Raw {
			match.ConnMark = condition(c, pick(c, whole(0), whole(1), marked(1, 1)))
		}
	case 8:
		if kind != interception.Raw {
			match.State = condition(c, pick(c, interception.StateNew, interception.StateInvalid|interception.StateUntracked, interception.StateEstablished))
		}
	}
	return match
}

func randomL4(c choices) interception.L4 {
	l4 := pick(c, interception.L4{}, interception.TCP(), interception.UDP(), interception.TCP().To(interception.Ports(80, 8080)))
	switch protocol := l4.Protocol(); c(6) {
	case 0:
		if protocol != interception.AnyProtocol {
			return l4.NotTo(interception.Ports(443))
		}
	case 1:
		if protocol == interception.ProtocolTCP {
			return pick(c, l4.Flags(interception.Opening()), l4.NotFlags(interception.Opening()))
		}
	}
	return l4
}

// condition is Is or Not.
func condition[S interception.Operand](c choices, set S) interception.Condition[S] {
	return pick(c, interception.Is[S], interception.Not[S])(set)
}

// destinations are those of random packets and, around them, of random prefixes.
var (
	destinations4 = [...]string{"127.0.0.1", "127.0.0.6", "10.244.0.2", "10.244.0.9", "192.0.2.1", "198.51.100.1"}
	destinations6 = [...]string{"::1", "::6", "fd00:10:244::2", "fd00:10:244::9", "2001:db8::1", "2001:db8:1::1"}
)

func destinations(family interception.Family) []string {
	if family == interception.IPv4 {
		return destinations4[:]
	}
	return destinations6[:]
}

// randomPrefixes has one member at least, all of one family.
func randomPrefixes(c choices, family interception.Family) interception.PrefixSet {
	var prefixes []netip.Prefix
	for range 1 + c(3) {
		addr := netip.MustParseAddr(pick(c, destinations(family)...))
		prefixes = append(prefixes, netip.PrefixFrom(addr, pick(c, 8, 24, addr.BitLen())))
	}
	return interception.Prefixes(prefixes...)
}

// randomPacket is a packet that can start in a world of randomWorld.
func randomPacket(c choices) trace.Packet {
	family := pick(c, interception.IPv4, interception.IPv6)
	dst := netip.AddrPortFrom(netip.MustParseAddr(pick(c, destinations(family)...)), pick[uint16](c, 53, 80, 443, 8080, 15001, 15006, 15008))
	packet := trace.Packet{
		From:     trace.Socket{UID: pick(c, application, proxy), GID: pick(c, interception.GID(application), interception.GID(proxy))},
		Protocol: pick(c, interception.ProtocolTCP, interception.ProtocolTCP, interception.ProtocolUDP),
		Dst:      dst,
	}
	switch c(4) {
	case 0:
		packet.From = trace.Arrival{Link: "eth0"}
		packet.Src = netip.AddrPortFrom(netip.MustParseAddr(destinations(family)[3]), 40000)
	case 1:
		packet.Src = netip.AddrPortFrom(netip.MustParseAddr(pick(c, destinations(family)[:3]...)), 0)
	}
	if packet.Protocol == interception.ProtocolTCP && c(6) == 0 {
		packet.Flags = pick(c, interception.FlagACK, interception.FlagACK|interception.FlagFIN, interception.FlagSYN|interception.FlagACK, interception.FlagRST)
	}
	return packet
}

// marking is the packet, from a socket with a random mark that may be bound to a source which isn't local.
func marking(c choices, packet trace.Packet) trace.Packet {
	if socket, ok := packet.From.(trace.Socket); ok {
		socket.Mark, socket.Transparent = pick[interception.Mark](c, 0, 0, 1, 2), c(4) == 0
		if socket.Transparent {
			packet.Src = netip.AddrPortFrom(netip.MustParseAddr(pick(c, destinations(interception.FamilyOf(packet.Dst.Addr()))...)), 0)
		}
		packet.From = socket
	}
	return packet
}

// randomWorld is a pod with the plans and all that random packets can meet.
func randomWorld(plans ...*interception.Plan) trace.World {
	world := trace.Sidecar(nil, trace.SidecarOptions{
		Loopback: addresses("::6/128"),
		Listeners: []trace.Listener{
			{Name: "application", Protocol: interception.ProtocolTCP, Port: 8080},
			{Name: "outbound", Proxy: true, Protocol: interception.ProtocolTCP, Port: 15001},
			{Name: "inbound", Proxy: true, Protocol: interception.ProtocolTCP, Port: 15006, Transparent: true},
			{Name: "resolver", Proxy: true, Protocol: interception.ProtocolTCP, Port: 15053},
			{Name: "resolver", Proxy: true, Protocol: interception.ProtocolUDP, Port: 15053},
		},
	})
	pod := &world.Namespaces[0]
	pod.Plans = plans
	for _, plan := range plans {
		if _, ok := plan.Set("live"); ok {
			pod.LiveSets = append(pod.LiveSets, trace.LiveSet{Owner: plan.Owner, Name: "live", Members: set("10.0.0.0/8")})
		}
	}
	return world
}
