// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/interception/lower"
)

// source chooses the source address for a packet to addr that takes the route: the one that the
// route prefers, else an address of the link that it leaves by, else of any other link. It returns
// the zero Addr if the namespace has none of the family. It also does so if a socket that is not
// transparent would have to use a foreign source: the source of a local IPv4 route is the
// destination, and connect(2) looks the route up again from that source (net/ipv4/route.c,
// ip_route_output_key_hash_rcu).
func (n *network) source(way route, to netip.Addr, transparent bool) netip.Addr {
	switch {
	case way.source.IsValid():
		return way.source
	case way.borrowed && to.Is4() && !transparent:
		return netip.Addr{}
	case way.link.Name == loopback && to.Is4() && !way.foreign:
		prefix, _ := n.localPrefix(to)
		return prefix.Addr()
	case way.link.Name == loopback && (to.Is4() || !way.foreign):
		return to // for IPv4 what a local route does, for IPv6 RFC 6724 section 5, rule 1
	}
	return n.chosen(way.link, to)
}

// chosen returns the source address for a packet that leaves by a link, if no route prefers one.
func (n *network) chosen(link *Link, to netip.Addr) netip.Addr {
	if link.Name == loopback {
		link = link.global(to)
	}
	if address := link.choose(to); address.IsValid() {
		return address
	}
	return n.others().choose(to)
}

// others collects the addresses of all links but lo, whose scope is the smallest.
func (n *network) others() *Link {
	all := &Link{}
	for _, l := range n.Links {
		if l.Name != loopback {
			all.Addresses = append(all.Addresses, l.Addresses...)
		}
	}
	return all
}

// global collects the link's IPv6 addresses of the greatest scope, for a destination of that scope.
// For packets that leave by lo, addresses of lo precede those of other links (RFC 6724 section 5,
// rules 2 and 5).
func (l *Link) global(to netip.Addr) *Link {
	kept := &Link{}
	for _, prefix := range l.Addresses {
		if a := prefix.Addr(); a.Is6() && !a.IsLoopback() && !a.IsLinkLocalUnicast() && !to.IsLinkLocalUnicast() {
			kept.Addresses = append(kept.Addresses, prefix)
		}
	}
	return kept
}

func (l *Link) choose(to netip.Addr) netip.Addr {
	if to.Is4() {
		return l.source4(to)
	}
	return l.source6(to)
}

// source4 returns the first address of the longest prefix that holds the destination, else the
// link's first address, whose subnet is assumed to hold the gateway.
func (l *Link) source4(to netip.Addr) netip.Addr {
	var best netip.Prefix
	for _, prefix := range l.Addresses {
		longer := prefix.Contains(to) && (!best.Contains(to) || prefix.Bits() > best.Bits())
		if prefix.Addr().Is4() && (!best.IsValid() || longer) {
			best = prefix
		}
	}
	return best.Addr()
}

// source6 implements the rules of RFC 6724 section 5 that can distinguish addresses of one link:
// rule 2, the smallest sufficient scope, and rule 8, the longest common prefix. It leaves out
// labels (rule 6).
func (l *Link) source6(to netip.Addr) netip.Addr {
	var best netip.Addr
	bestFit, bestLength := false, -1
	for _, prefix := range l.Addresses {
		if !prefix.Addr().Is6() {
			continue
		}
		fit := prefix.Addr().IsLinkLocalUnicast() == to.IsLinkLocalUnicast()
		length := min(lower.CommonBits(prefix.Addr(), to), prefix.Bits())
		if !best.IsValid() || fit && !bestFit || fit == bestFit && length > bestLength {
			best, bestFit, bestLength = prefix.Addr(), fit, length
		}
	}
	return best
}

// loopbackAddress returns 127.0.0.1 or ::1, of the family of addr.
func loopbackAddress(addr netip.Addr) netip.Addr {
	if addr.Is4() {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}

// redirectAddress returns the link's first address that can replace the destination: for IPv4 any,
// for IPv6 one of the same class.
func (l *Link) redirectAddress(to netip.Addr) (netip.Addr, bool) {
	for _, prefix := range l.Addresses {
		addr := prefix.Addr()
		if addr.Is4() == to.Is4() && (to.Is4() || classOf(to) < 0 || classOf(to) == classOf(addr)) {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

// classOf returns the part of the kernel's class of an IPv6 unicast address that limits redirects:
// the bits of IPV6_ADDR_SCOPE_MASK, which hold IPv4-compatible addresses too (include/net/ipv6.h);
// -1 for a global address. A passthrough source such as ::6 is IPv4-compatible; ::1 has a bit of
// its own, and never comes by a link where it would matter.
func classOf(addr netip.Addr) int {
	// link-local, site-local, IPv4-compatible
	classes := []string{"fe80::/10", "fec0::/10", "::/96"}
	return slices.IndexFunc(classes, func(class string) bool { return netip.MustParsePrefix(class).Contains(addr) })
}
