// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// loopbacks are the loopback addresses (RFC 1122 section 3.2.1.3, RFC 4291 section 2.5.3).
func loopbacks() interception.PrefixSet {
	return interception.Prefixes(netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"))
}

// selectors are what policy rules see of packets.
type selectors struct {
	src, dst address
	// unbound means that the packets' sockets have not chosen a source yet.
	unbound bool
	// in is the link that the packets arrive by; lo for what the namespace's sockets send.
	in   linkName
	mark mark
}

// selectors returns what policy rules see of a thread that comes by a link.
func (t thread) selectors(in linkName) selectors {
	return selectors{src: t.src.address, dst: t.dst.address, in: in, mark: t.mark}
}

// routing is where packets go, and why others go nowhere. Packets in neither have no route.
type routing struct {
	ways    []choice[way]
	refused []choice[trace.Cause]
}

// ways returns the ways of packets. [engine.unrouted] ends packets in no way.
func (e *engine) ways(s selectors) []choice[way] { return e.routing(s).ways }

// unrouted ends packets that take no way.
func (e *engine) unrouted(t thread, s selectors) {
	for _, r := range e.routing(s).refused {
		on, rest := e.split(t, r.where)
		e.stop(on, ending{verdict: trace.Unroutable, cause: r.value}, nil)
		t = rest
	}
	e.stop(t, ending{verdict: trace.Unroutable, cause: trace.NoRoute}, nil)
}

func (e *engine) routing(s selectors) routing {
	if !e.net.asksSource() {
		s.src, s.unbound = address{}, false
	}
	if known, ok := e.routed[s]; ok {
		return known
	}
	var candidates []choice[hop]
	var jumps []jump
	for i, rule := range e.net.Rules {
		asked := e.meeting(s, rule)
		for _, j := range jumps {
			if i < j.to {
				asked = e.without(asked, j.where)
			}
		}
		if asked == never {
			continue
		}
		if rule.Goto != 0 {
			if to, ok := e.net.Target(rule); ok {
				jumps = append(jumps, jump{to, asked})
			}
			continue
		}
		for _, found := range e.lookup(rule.Table, s.dst) {
			found.value.dst, found.value.mark = s.dst, s.mark
			candidates = append(candidates, choice[hop]{found.value, e.and(asked, found.where)})
		}
	}
	var found routing
	for _, c := range first(e.question, candidates) {
		if cause := refusal(c.value.kind); cause != 0 {
			found.refused = append(found.refused, choice[trace.Cause]{cause, c.where})
		} else {
			found.ways = append(found.ways, choice[way]{c.value.way, c.where})
		}
	}
	e.routed[s] = found
	return found
}

// jump are packets that go on with the policy rule of an index, and meet none before it.
type jump struct {
	to    int
	where ref
}

// hop is the result of a lookup in a table: a way, unless the route's type refuses packets.
type hop struct {
	way

	kind interception.RouteType
}

// refusal returns why routes of a type refuse packets; 0 if they do not.
func refusal(kind interception.RouteType) trace.Cause {
	switch kind {
	case interception.RouteUnreachable:
		return trace.Unreachable
	case interception.RouteBlackhole:
		return trace.Discarded
	case interception.RouteUnicast, interception.RouteLocal, interception.RouteThrow:
	}
	return 0
}

// meeting returns the packets that a policy rule is about.
func (e *engine) meeting(s selectors, r interception.PolicyRule) ref {
	if r.In != "" && r.In != s.in || r.Source.IsValid() && s.unbound {
		return never
	}
	met := e.and(e.ofFamily(r.Family), e.marked(s.mark, r.Mark))
	if r.Source.IsValid() {
		met = e.and(met, e.inPrefix(s.src, r.Source))
	}
	if r.Destination.IsValid() {
		met = e.and(met, e.inPrefix(s.dst, r.Destination))
	}
	return met
}

// candidate is a route of a table, and how well it fits.
type candidate struct {
	prefix netip.Prefix
	bits   int
	metric uint32
	link   linkName
	source netip.Addr
	kind   interception.RouteType // local: whatever the destination
	plan   bool                   // of a plan, not implied by addresses
}

// lookup returns the hops of one table: by the longest prefix and then the lowest metric, a plan's
// before an implied one of the same. Packets in none are left to the next table.
func (e *engine) lookup(table interception.RoutingTable, to address) []choice[hop] {
	implied := e.implied(table)
	var planned []candidate
	// Of two routes with the same prefix and metric, the later one applies.
	for _, r := range slices.Backward(e.net.Routes) {
		if r.Table == table {
			c := candidate{
				prefix: r.Destination, bits: r.Destination.Bits(), metric: r.EffectiveMetric(), link: r.Device, source: r.Source, kind: r.Type, plan: true,
			}
			if c.kind == interception.RouteLocal {
				c.link = loopback
			}
			planned = append(planned, c)
		}
	}
	all := slices.Concat(planned, implied)
	slices.SortStableFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.bits, a.bits), cmp.Compare(a.metric, b.metric))
	})
	own := e.within(to, e.net.local())
	var found []choice[hop]
	for _, c := range all {
		where := e.inPrefix(to, c.prefix)
		if table == mainTable && !c.plan {
			where = e.without(where, e.within(to, loopbacks()))
		}
		found = append(found, choice[hop]{hop{way{link: c.link, source: c.source}, c.kind}, where})
		if c.kind == interception.RouteLocal {
			found[len(found)-1].where = e.and(where, own)
			found = append(found, choice[hop]{hop{way{link: c.link, foreign: true, borrowed: table != localTable}, c.kind}, where})
		}
	}
	return slices.DeleteFunc(first(e.question, found), func(c choice[hop]) bool { return c.value.kind == interception.RouteThrow })
}

// implied returns the routes of a table that the links' addresses imply.
func (e *engine) implied(table interception.RoutingTable) []candidate {
	var all []candidate
	switch table {
	case localTable:
		local, _ := e.net.localPrefixes()
		for _, p := range local {
			all = append(all, candidate{prefix: p, bits: p.Addr().BitLen(), link: loopback}) // metric 0, as all of this table
		}
	case mainTable:
		for i, l := range e.net.Links {
			if l.Name == loopback {
				continue
			}
			for _, p := range l.Addresses {
				all = append(all, candidate{
					prefix: p.Masked(), bits: p.Bits(), metric: e.net.ImpliedMetric(table, p.Addr(), p.Bits()), link: l.Name,
				})
				if i < e.net.Own && (p.Addr().Is4() || !p.Addr().IsLinkLocalUnicast()) {
					all = append(all, candidate{
						prefix: netip.PrefixFrom(p.Addr(), 0).Masked(), metric: e.net.ImpliedMetric(table, p.Addr(), 0), link: l.Name,
					})
				}
			}
		}
	}
	return all
}

// martianOut returns the packets that cannot leave a socket by the link.
func (e *engine) martianOut(t thread) ref {
	if t.way.link == loopback || e.net.SwitchedOn("route_localnet", t.way.link) {
		return never
	}
	return e.and(e.ofFamily(interception.IPv4), e.within(t.src.address, loopbacks()))
}

// martianAtLink returns the packets that IPv6 discards on arrival by a link, before any rule.
func (e *engine) martianAtLink(t thread) ref {
	both := e.or(e.within(t.src.address, loopbacks()), e.within(t.dst.address, loopbacks()))
	return e.and(e.ofFamily(interception.IPv6), both)
}

// reroute routes packets again to which rules of Output gave another destination or mark, and ends
// those without a route.
func (e *engine) reroute(ts threads) threads {
	var routed threads
	for _, t := range ts.list {
		if t.way.dst == t.dst.address && t.way.mark == t.mark {
			e.add(&routed, t)
			continue
		}
		s := t.selectors(loopback)
		for _, w := range e.ways(s) {
			on, rest := e.split(t, w.where)
			t = rest
			if on.way.link != w.value.link && on.why.changed != 0 {
				on.why.redirect = on.why.changed
			}
			on.way = w.value
			martian, on := e.split(on, e.martianOut(on))
			e.stop(martian, ending{trace.Unroutable, trace.Martian, ""}, nil)
			e.add(&routed, on)
		}
		e.unrouted(t, s)
	}
	return routed
}
