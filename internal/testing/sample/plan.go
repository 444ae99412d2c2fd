// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"fmt"
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

// Plan returns a valid plan of some tables, with all of their hooks and kinds of rules.
func Plan(c Choices, owner interception.Owner, kinds ...interception.TableKind) *interception.Plan {
	plan := &interception.Plan{Owner: owner, Objects: []interception.Object{
		interception.Set{Name: "four", Family: interception.IPv4, Members: Prefixes(c, interception.IPv4), Why: "why"},
		interception.Set{Name: "six", Family: interception.IPv6, Members: Prefixes(c, interception.IPv6), Why: "why"},
		interception.Set{Name: "live", Family: interception.IPv4, Live: true, Why: "why"},
		interception.Route{
			ID: "route.v4", Type: interception.RouteLocal, Destination: netip.MustParsePrefix("0.0.0.0/0"), Device: "lo", Table: 133, Why: "why",
		},
		interception.Route{
			ID: "route.v6", Type: interception.RouteLocal, Destination: netip.MustParsePrefix("::/0"), Device: "lo", Table: 133, Why: "why",
		},
		interception.PolicyRule{ID: "rule.v4", Family: interception.IPv4, Mark: whole(1), Table: 133, Priority: 1, Why: "why"},
		interception.PolicyRule{ID: "rule.v6", Family: interception.IPv6, Mark: marked(1, 3), Table: 133, Priority: 1, Why: "why"},
	}}
	for _, kind := range kinds {
		table := interception.Table{Kind: kind}
		for _, hook := range subset(c, kind.Hooks()...) {
			addChains(c, &table, hook)
		}
		plan.Objects = append(plan.Objects, table)
	}
	return plan
}

// addChains adds one to three chains that are reached from the hook: by an entry or by a jump from
// the previous chain.
func addChains(c Choices, table *interception.Table, hook interception.Hook) {
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
			jump := interception.Jump{Chain: chain.Name}
			caller.Rules = append(caller.Rules, interception.Rule{ID: id, Match: randomMatch(c, table.Kind, hook), Action: jump, Why: "why"})
		}
		table.Chains = append(table.Chains, chain)
	}
	for i, chain := range table.Chains[first:] {
		if i > 0 && c(3) > 0 {
			continue
		}
		id := interception.RuleID(fmt.Sprintf("%s.%s.%s", table.Kind, hook, chain.Name))
		match := randomMatch(c, table.Kind, hook)
		offset := Pick[int32](c, 0, 0, 0, -5, 5, -160, 160)
		table.Entries = append(table.Entries, interception.Entry{ID: id, Hook: hook, Offset: offset, Match: match, Chain: chain.Name, Why: "why"})
	}
}

func randomAction(c Choices, kind interception.TableKind, hook interception.Hook, match interception.Match) interception.Action {
	if c(3) == 0 {
		return Pick[interception.Action](c, interception.Return{}, interception.Accept{}, interception.Log{Prefix: "seen"})
	}
	mark := Pick(c, whole(1), whole(2), marked(1, 1), marked(0, 1))
	switch kind {
	case interception.Raw:
		return Pick[interception.Action](c, interception.Drop{}, interception.NoTrack{}, interception.SetZone{Zone: 1}, interception.SetZone{})
	case interception.Mangle:
		if hook == interception.Prerouting && match.L4.Protocol() != interception.AnyProtocol && c(2) == 0 {
			return interception.TProxyTo{Port: Pick[interception.Port](c, 15001, 15006), Mark: mark}
		}
		return Pick[interception.Action](c, interception.Drop{}, interception.SetMark{Mark: mark}, interception.SetMark{Mark: mark},
			interception.SaveMark{}, interception.SaveMark{Mask: 2}, interception.RestoreMark{}, interception.SetConnMark{Mark: mark})
	case interception.NAT:
		return randomTranslation(c, hook, match)
	case interception.Filter:
	}
	return Pick[interception.Action](c, interception.Drop{}, interception.Reject{}, interception.Accept{})
}

// randomTranslation returns a translation that the match allows, or Return if it allows none.
func randomTranslation(c Choices, hook interception.Hook, match interception.Match) interception.Action {
	source := hook == interception.Input || hook == interception.Postrouting
	transport := match.L4.Protocol() != interception.AnyProtocol
	if !source && transport && c(2) == 0 {
		return interception.RedirectTo{Port: Pick[interception.Port](c, 15001, 15006)}
	}
	family := match.EffectiveFamily()
	if family == interception.BothFamilies {
		return interception.Return{}
	}
	addr, port := netip.MustParseAddr(Pick(c, destinations(family)...)), interception.Port(0)
	if transport {
		port = Pick[interception.Port](c, 0, 8080)
	}
	if source {
		return interception.SNATTo{Addr: addr, Port: port}
	}
	return interception.DNATTo{Addr: addr, Port: port}
}

// randomMatch returns a match that the table and the hook allow, more often wide than narrow.
func randomMatch(c Choices, kind interception.TableKind, hook interception.Hook) interception.Match {
	match := interception.Match{L4: randomL4(c)}
	links := condition(c, interception.Interfaces(Pick[interception.Interface](c, "lo", "eth0", "eth*")))
	switch c(9) {
	case 0, 1:
		match.Family = Pick(c, interception.IPv4, interception.IPv6)
	case 2:
		match.Dst = condition(c, Prefixes(c, Pick(c, interception.IPv4, interception.IPv6)))
	case 3:
		match.SrcSet = condition(c, Pick(c,
			interception.SetRef{Name: "four", Family: interception.IPv4}, interception.SetRef{Name: "six", Family: interception.IPv6},
			interception.SetRef{Name: "live", Family: interception.IPv4}))
	case 4:
		if hook == interception.Prerouting || hook == interception.Input {
			match.In = links
		} else {
			match.Out = links
		}
	case 5:
		if hook == interception.Output || hook == interception.Postrouting {
			match.UID = condition(c, interception.UIDs(Pick[interception.UID](c, Application, Proxy)))
		}
	case 6:
		match.Mark = condition(c, Pick(c, whole(0), whole(1), marked(1, 1)))
	default:
		trackingMatch(c, kind, &match)
	}
	return match
}

// trackingMatch adds conditions that are known only after connection tracking.
func trackingMatch(c Choices, kind interception.TableKind, match *interception.Match) {
	if kind == interception.Raw {
		return
	}
	switch c(3) {
	case 0:
		match.ConnMark = condition(c, Pick(c, whole(0), whole(1), marked(1, 1)))
	case 1:
		match.State = condition(c, Pick(c,
			interception.StateNew, interception.StateInvalid|interception.StateUntracked, interception.StateEstablished))
	default:
		match.Direction = Pick(c, interception.DirectionOriginal, interception.DirectionReply)
	}
}

func whole(value interception.Mark) interception.MarkBits { return interception.WholeMark(value) }

func marked(value, mask interception.Mark) interception.MarkBits {
	return interception.MarkBits{Value: value, Mask: mask}
}

func randomL4(c Choices) interception.L4 {
	l4 := Pick(c, interception.L4{}, interception.TCP(), interception.UDP(), interception.TCP().To(interception.Ports(80, 8080)))
	switch protocol := l4.Protocol(); c(6) {
	case 0:
		if protocol != interception.AnyProtocol {
			return l4.NotTo(interception.Ports(443))
		}
	case 1:
		if protocol == interception.ProtocolTCP {
			return Pick(c, l4.Flags(interception.Opening()), l4.NotFlags(interception.Opening()))
		}
	}
	return l4
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

// Prefixes returns at least one prefix, all of one family.
func Prefixes(c Choices, family interception.Family) interception.PrefixSet {
	var prefixes []netip.Prefix
	for range 1 + c(3) {
		addr := netip.MustParseAddr(Pick(c, destinations(family)...))
		prefixes = append(prefixes, netip.PrefixFrom(addr, Pick(c, 8, 24, addr.BitLen())))
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
