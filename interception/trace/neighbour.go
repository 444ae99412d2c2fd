// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

// asker returns the source address with which a namespace asks for a neighbour at a link: the
// packet's, if it is the namespace's own, else one of the link (net/ipv4/arp.c, arp_solicit).
func (n *network) asker(link interception.Interface, h Header, hop netip.Addr) netip.Addr {
	if n.isLocal(h.Src.Addr()) {
		return h.Src.Addr()
	}
	at, _ := n.link(link)
	return n.chosen(at, hop)
}

// isNeighbour reports whether the namespace answers, by a link, the question of another one for an
// address. For IPv4 it does so for all its addresses, if routing would take the question as a
// packet (net/ipv4/arp.c, arp_process); for IPv6 for those of the link (net/ipv6/ndisc.c,
// ndisc_recv_ns).
func (n *network) isNeighbour(link interception.Interface, asker, hop netip.Addr) bool {
	if hop.Is6() {
		at, _ := n.link(link)
		return at.has(hop)
	}
	if !asker.IsValid() {
		return n.isLocal(hop)
	}
	question := Header{Src: netip.AddrPortFrom(asker, 0), Dst: netip.AddrPortFrom(hop, 0)}
	return n.onInput(question, link) == 0
}

func (l *Link) has(addr netip.Addr) bool {
	for _, prefix := range l.Addresses {
		if prefix.Addr() == addr {
			return true
		}
	}
	return false
}
