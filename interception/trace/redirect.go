// SPDX-License-Identifier: Apache-2.0

package trace

import "net/netip"

// loopbackAddress is 127.0.0.1 or ::1, of the family of addr.
func loopbackAddress(addr netip.Addr) netip.Addr {
	if addr.Is4() {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}

// redirectAddress is the link's first address that can stand for the destination: for IPv4 any, for IPv6 one of the same class.
func (l *Link) redirectAddress(to netip.Addr) (netip.Addr, bool) {
	for _, prefix := range l.Addresses {
		addr := prefix.Addr()
		if addr.Is4() == to.Is4() && (to.Is4() || classOf(to) == global || classOf(to) == classOf(addr)) {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

// class is the kernel's class of an IPv6 unicast address, as far as it limits redirects: the bits of IPV6_ADDR_SCOPE_MASK, which
// hold IPv4-compatible addresses too (include/net/ipv6.h). A passthrough source such as ::6 is one of these; ::1 has a bit of its
// own, and never comes by a link where it would matter.
type class uint8

const (
	global class = iota
	linkLocal
	siteLocal
	ipv4Compatible
)

func classOf(addr netip.Addr) class {
	bytes := addr.As16()
	switch {
	case addr.IsLinkLocalUnicast():
		return linkLocal
	case bytes[0] == 0xfe && bytes[1]&0xc0 == 0xc0:
		return siteLocal
	case [12]byte(bytes[:12]) == [12]byte{}:
		return ipv4Compatible
	default:
		return global
	}
}
