// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// route is the way that a packet takes.
type route struct {
	// link is the outgoing link; lo for local destinations.
	link *Link
	// foreign reports whether the packet is delivered here although its destination is not an address
	// of the namespace.
	foreign bool
	// borrowed reports whether it is foreign by a plan's table: for IPv4, a local route in the
	// table "local" makes an own address.
	borrowed bool
	// gateway is the next hop; the zero Addr is the destination itself or, for a default route that
	// links imply, anyone at the other end.
	gateway netip.Addr
	anyone  bool
	// source is the route's preferred source, or the zero Addr.
	source netip.Addr
	// cause is why the route discards the packet; it then has no link.
	cause Cause
}

// selectors are what policy rules see of a packet.
type selectors struct {
	// src is the zero Addr while the socket has chosen none.
	src, dst netip.Addr
	// in is the link that the packet arrives by; lo for what the namespace's sockets send
	// (net/ipv4/route.c, ip_route_output_key_hash_rcu; net/ipv6/route.c, ip6_route_output_flags).
	in   interception.Interface
	mark interception.Mark
}

// meet reports whether a policy rule is about the packet.
func (s selectors) meet(r interception.PolicyRule) bool {
	return r.Family.Covers(s.dst) && r.Mark.Matches(s.mark) && (r.In == "" || r.In == s.in) &&
		(!r.Source.IsValid() || r.Source.Contains(s.src)) && (!r.Destination.IsValid() || r.Destination.Contains(s.dst))
}

// selectors returns what policy rules see of a packet that comes by a link.
func (h Header) selectors(in interception.Interface) selectors {
	return selectors{src: h.Src.Addr(), dst: h.Dst.Addr(), in: in, mark: h.Mark}
}

// route looks the destination up in the routing tables, in the order of the policy rules that the
// packet meets. It returns why there is no way, or 0.
func (n *network) route(s selectors) (route, Cause) {
	for i := 0; i < len(n.Rules); i++ {
		rule := n.Rules[i]
		if !s.meet(rule) {
			continue
		}
		if rule.Goto != 0 {
			if to, ok := n.Target(rule); ok {
				i = to - 1
			}
			continue
		}
		if found, ok := n.lookup(rule.Table, s.dst); ok {
			return found, found.cause
		}
	}
	return route{}, NoRoute
}

// lookup searches one table for the longest prefix, and among its routes for the lowest metric; a
// plan's route precedes an implied one of the same. It reports whether the table decides.
func (n *network) lookup(table interception.RoutingTable, to netip.Addr) (route, bool) {
	found, longest := n.implied(table, to)
	metric := n.ImpliedMetric(table, to, longest)
	for _, r := range n.Routes {
		bits := r.Destination.Bits()
		if r.Table != table || !r.Destination.Contains(to) || bits < longest || bits == longest && r.EffectiveMetric() > metric {
			continue
		}
		found, longest, metric = n.taking(r, to), bits, r.EffectiveMetric()
	}
	return found, found.link != nil || found.cause != 0
}

// taking returns the way of a packet by a plan's route; the zero value for a route that leaves it
// to other tables.
func (n *network) taking(r interception.Route, to netip.Addr) route {
	switch r.Type {
	case interception.RouteUnreachable:
		return route{cause: Unreachable}
	case interception.RouteBlackhole:
		return route{cause: Discarded}
	case interception.RouteThrow:
		return route{}
	case interception.RouteLocal:
		lo, _ := n.link(loopback)
		return route{link: lo, foreign: !n.isLocal(to), borrowed: r.Table != localTable && !n.isLocal(to)}
	case interception.RouteUnicast:
	}
	link, _ := n.link(r.Device)
	return route{link: link, gateway: r.Gateway, source: r.Source}
}

// ImpliedMetric returns the metric of a route of some prefix length that the addresses of links
// imply: for IPv6, that of an address's subnet (net/ipv6/addrconf.c, IP6_RT_PRIO_ADDRCONF) or of a
// default route. Package proof uses it, too.
func (*Routing) ImpliedMetric(table interception.RoutingTable, to netip.Addr, bits int) uint32 {
	switch {
	case to.Is4() || table == localTable:
		return 0
	case bits == 0:
		return interception.Route{Destination: netip.PrefixFrom(to, 0)}.EffectiveMetric()
	default:
		return 256
	}
}

// implied returns the route that the links' addresses imply in a table, with its prefix length; -1
// without one.
func (n *network) implied(table interception.RoutingTable, to netip.Addr) (route, int) {
	var best *Link
	bits := -1
	switch {
	case table == localTable && n.isLocal(to):
		best, _ = n.link(loopback)
		bits = to.BitLen()
	case table == mainTable && !to.IsLoopback():
		for i := range n.Links {
			if l := &n.Links[i]; l.Name != loopback && l.covers(to, i < n.Own) > bits {
				best, bits = l, l.covers(to, i < n.Own)
			}
		}
	}
	return route{link: best, anyone: bits == 0}, bits
}

// covers returns the length of the link's longest prefix that holds the address: 0 by the implied
// default route if defaults allows it, -1 without a route.
func (l *Link) covers(to netip.Addr, defaults bool) int {
	longest := -1
	for _, prefix := range l.Addresses {
		switch {
		case prefix.Contains(to):
			longest = max(longest, prefix.Bits())
		case defaults && prefix.Addr().Is4() == to.Is4() && (to.Is4() || !prefix.Addr().IsLinkLocalUnicast()):
			longest = max(longest, 0)
		}
	}
	return longest
}

// isLocal reports whether addr is delivered within the namespace: an address of a link or, for
// IPv4, anything in a prefix of lo (net/ipv4/fib_frontend.c makes such a prefix a local route).
func (n *Namespace) isLocal(addr netip.Addr) bool {
	_, ok := n.localPrefix(addr)
	return ok
}

// localPrefix returns the address that makes addr local: the first of its subnet on its link, which
// is the preferred source of the kernel's local route.
func (n *Namespace) localPrefix(addr netip.Addr) (netip.Prefix, bool) {
	for _, l := range n.Links {
		for _, prefix := range l.Addresses {
			if prefix.Addr() == addr || l.Name == loopback && addr.Is4() && prefix.Contains(addr) {
				return l.Primary(prefix), true
			}
		}
	}
	return netip.Prefix{}, false
}

// Primary returns the first address of the link in the same subnet as one of its addresses. The
// others are secondary, and no route names them as source.
func (l *Link) Primary(address netip.Prefix) netip.Prefix {
	i := slices.IndexFunc(l.Addresses, func(p netip.Prefix) bool { return p.Masked() == address.Masked() })
	return l.Addresses[i]
}

// onArrival reports why IPv6 discards a packet from a link before any hook sees it (RFC 4291
// section 2.5.3).
func onArrival(h Header) Cause {
	if h.Dst.Addr().Is6() && (h.Src.Addr().IsLoopback() || h.Dst.Addr().IsLoopback()) {
		return Martian
	}
	return 0
}

// onInput reports why the routing of a packet from a link discards it (net/ipv4/route.c,
// ip_route_input_slow).
func (n *network) onInput(h Header, link interception.Interface) Cause {
	found, cause := n.route(h.selectors(link))
	local := cause == 0 && found.link.Name == loopback
	if h.Dst.Addr().Is4() {
		out := loopback // what the kernel looks the source up for
		if cause == 0 && n.Forwarding(interception.IPv4) {
			out = found.link.Name
		}
		if discards := n.sourceCause(h, link, out); discards != 0 {
			return discards
		}
	}
	if !local {
		return NotLocal
	}
	return 0
}

// onOutput reports why no packet leaves a socket: by the link found for it, from its source.
func (n *network) onOutput(link *Link, src netip.Addr) Cause {
	if src.Is4() && src.IsLoopback() && link.Name != loopback && !n.SwitchedOn("route_localnet", link.Name) {
		return Martian
	}
	return 0
}

func (n *Namespace) hasAddress(addr netip.Addr) bool {
	return slices.ContainsFunc(n.Links, func(l Link) bool {
		return slices.ContainsFunc(l.Addresses, func(p netip.Prefix) bool { return p.Addr() == addr })
	})
}
