// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// route is the way that a packet takes.
type route struct {
	// link is the one that it leaves by; lo for what is local.
	link *Link
	// foreign says that the packet is delivered here although its destination is no address of the
	// namespace.
	foreign bool
	// borrowed says so too, and that a table of somebody's has it so: for IPv4, what the table
	// "local" has for local is an own address.
	borrowed bool
}

// route asks the routing tables for the way to an address, in the order of the policy rules that
// the mark meets.
func (n *network) route(to netip.Addr, mark interception.Mark) (route, bool) {
	for _, rule := range n.rules {
		if !rule.Family.Covers(to) || !rule.Mark.Matches(mark) {
			continue
		}
		if found, ok := n.lookup(rule.Table, to); ok {
			return found, true
		}
	}
	return route{}, false
}

// lookup asks one table: for the longest prefix, a plan's before an implied one of the same length.
func (n *network) lookup(table interception.RoutingTable, to netip.Addr) (route, bool) {
	found, longest := n.implied(table, to)
	for _, r := range n.routes {
		if r.Table != table || !r.Destination.Contains(to) || r.Destination.Bits() < longest {
			continue
		}
		longest = r.Destination.Bits()
		if r.Type == interception.RouteLocal {
			lo, _ := n.link(loopback)
			found = route{link: lo, foreign: !n.isLocal(to), borrowed: table != localTable && !n.isLocal(to)}
			continue
		}
		link, _ := n.link(r.Device)
		found = route{link: link}
	}
	return found, found.link != nil
}

// implied is the route of a table that follows from the links' addresses, with the length of its
// prefix; -1 when there is none.
func (n *network) implied(table interception.RoutingTable, to netip.Addr) (route, int) {
	var best *Link
	bits := -1
	switch {
	case table == localTable && n.isLocal(to):
		best, _ = n.link(loopback)
		bits = to.BitLen()
	case table == mainTable && !to.IsLoopback():
		for i := range n.Links {
			if l := &n.Links[i]; l.Name != loopback && l.covers(to, i < n.given) > bits {
				best, bits = l, l.covers(to, i < n.given)
			}
		}
	}
	return route{link: best}, bits
}

// covers is how well the link's routes fit the address: the length of the longest prefix around it,
// 0 by the implied default route of a link that may have one, -1 when there is none.
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

// localPrefix returns the address that makes addr local, as the first of its subnet on its link:
// the one that stands as preferred source in the kernel's local route.
func (n *Namespace) localPrefix(addr netip.Addr) (netip.Prefix, bool) {
	for _, l := range n.Links {
		for _, prefix := range l.Addresses {
			if prefix.Addr() == addr || l.Name == loopback && addr.Is4() && prefix.Contains(addr) {
				return l.primary(prefix), true
			}
		}
	}
	return netip.Prefix{}, false
}

// primary returns the first address of the link in the same subnet. The others are secondary, and
// no route names them as source.
func (l *Link) primary(address netip.Prefix) netip.Prefix {
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
	src, dst := h.Src.Addr(), h.Dst.Addr()
	if dst.Is4() {
		loops := (src.IsLoopback() || dst.IsLoopback()) && !n.switchedOn("route_localnet", link)
		if loops || n.ownSource(src) && !n.switchedOn("accept_local", link) {
			return Martian
		}
	}
	if found, ok := n.route(dst, h.Mark); !ok || found.link.Name != loopback {
		return NotLocal
	}
	return 0
}

// ownSource reports whether IPv4 takes the source of what comes in for its own. Where there are
// routes or rules of somebody's the kernel asks all of them, else the addresses only
// (net/ipv4/fib_frontend.c, fib_validate_source). No rule asks for a mark here, which source
// validation doesn't look at (net.ipv4.conf.all.src_valid_mark).
func (n *network) ownSource(src netip.Addr) bool {
	if n.custom() {
		found, ok := n.route(src, 0)
		return ok && found.link.Name == loopback
	}
	return n.hasAddress(src)
}

// custom reports whether there are policy rules or local routes of IPv4 beside those of the kernel.
func (n *network) custom() bool {
	return slices.ContainsFunc(n.rules, func(r interception.PolicyRule) bool { return r.Family == interception.IPv4 }) ||
		slices.ContainsFunc(n.routes, func(r interception.Route) bool {
			return r.Type == interception.RouteLocal && r.Destination.Addr().Is4()
		})
}

// onOutput reports why no packet leaves a socket: by the link found for it, from its source.
func (n *network) onOutput(link *Link, src netip.Addr) Cause {
	if src.Is4() && src.IsLoopback() && link.Name != loopback && !n.switchedOn("route_localnet", link.Name) {
		return Martian
	}
	return 0
}

func (n *Namespace) hasAddress(addr netip.Addr) bool {
	return slices.ContainsFunc(n.Links, func(l Link) bool {
		return slices.ContainsFunc(l.Addresses, func(p netip.Prefix) bool { return p.Addr() == addr })
	})
}
