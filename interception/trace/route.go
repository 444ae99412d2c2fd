// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"net/netip"
)

// isLocal reports whether addr is delivered within the namespace: an address of a link or, for IPv4, anything in a prefix
// of lo (net/ipv4/fib_frontend.c makes such a prefix a local route).
func (n *Namespace) isLocal(addr netip.Addr) bool {
	_, ok := n.localPrefix(addr)
	return ok
}

// localPrefix returns the address that makes addr local, as the first of its subnet on its link: the one that stands as
// preferred source in the kernel's local route.
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

// primary returns the first address of the link in the same subnet. The others are secondary, and no route names them as source.
func (l *Link) primary(address netip.Prefix) netip.Prefix {
	for _, candidate := range l.Addresses {
		if candidate.Masked() == address.Masked() {
			return candidate
		}
	}
	return address
}

// route finds the link by which a packet to addr leaves.
func (n *Namespace) route(to netip.Addr) (*Link, bool) {
	if n.isLocal(to) {
		return n.link(loopback)
	}
	if to.IsLoopback() {
		return nil, false
	}
	var best *Link
	bits := -1
	for i := range n.Links {
		if l := &n.Links[i]; l.Name != loopback && l.covers(to) > bits {
			best, bits = l, l.covers(to)
		}
	}
	return best, best != nil
}

// covers is how well the link's routes fit the address: the length of the longest prefix around it, 0 by the implied default
// route, -1 when there is none.
func (l *Link) covers(to netip.Addr) int {
	longest := -1
	for _, prefix := range l.Addresses {
		switch {
		case prefix.Contains(to):
			longest = max(longest, prefix.Bits())
		case prefix.Addr().Is4() == to.Is4() && (to.Is4() || !prefix.Addr().IsLinkLocalUnicast()):
			longest = max(longest, 0)
		}
	}
	return longest
}

// source chooses the source address for a packet to addr that leaves by link.
func (n *Namespace) source(link *Link, to netip.Addr) netip.Addr {
	switch {
	case link.Name == loopback && to.Is6():
		return to // RFC 6724 section 5, rule 1
	case link.Name == loopback:
		prefix, _ := n.localPrefix(to)
		return prefix.Addr()
	case to.Is4():
		return link.source4(to)
	default:
		return link.source6(to)
	}
}

// source4 is the first address of the longest prefix that holds the destination, else the link's first address, whose subnet
// the gateway is taken to be in.
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

// source6 follows RFC 6724 section 5 as far as addresses of one link differ in it: rule 2, the smallest sufficient scope, and rule 8,
// the longest common prefix. Labels (rule 6) are left out.
func (l *Link) source6(to netip.Addr) netip.Addr {
	var best netip.Addr
	bestFit, bestLength := false, -1
	for _, prefix := range l.Addresses {
		if !prefix.Addr().Is6() {
			continue
		}
		fit := prefix.Addr().IsLinkLocalUnicast() == to.IsLinkLocalUnicast()
		length := min(commonBits(prefix.Addr(), to), prefix.Bits())
		if !best.IsValid() || fit && !bestFit || fit == bestFit && length > bestLength {
			best, bestFit, bestLength = prefix.Addr(), fit, length
		}
	}
	return best
}

// commonBits counts the leading bits that both IPv6 addresses share.
func commonBits(a, b netip.Addr) int {
	prefix := 0
	for prefix < a.BitLen() && netip.PrefixFrom(a, prefix+1).Contains(b) {
		prefix++
	}
	return prefix
}

// onArrival reports why IPv6 discards a packet from a link before any hook sees it (RFC 4291 section 2.5.3).
func onArrival(h Header) Cause {
	if h.Dst.Addr().Is6() && (h.Src.Addr().IsLoopback() || h.Dst.Addr().IsLoopback()) {
		return Martian
	}
	return 0
}

// onInput reports why the routing of a packet from a link discards it (net/ipv4/route.c, ip_route_input_slow).
func (n *Namespace) onInput(h Header) Cause {
	src, dst := h.Src.Addr(), h.Dst.Addr()
	switch {
	case dst.Is4() && (dst.IsLoopback() || src.IsLoopback() || n.hasAddress(src)):
		return Martian
	case !n.isLocal(dst):
		return NotLocal
	default:
		return 0
	}
}

// onOutput reports why no packet leaves a socket: by the link found for it, from its source.
func onOutput(link *Link, src netip.Addr) Cause {
	switch {
	case link == nil:
		return NoRoute
	case src.Is4() && src.IsLoopback() && link.Name != loopback:
		return Martian
	default:
		return 0
	}
}

func (n *Namespace) hasAddress(addr netip.Addr) bool {
	for _, l := range n.Links {
		for _, prefix := range l.Addresses {
			if prefix.Addr() == addr {
				return true
			}
		}
	}
	return false
}
