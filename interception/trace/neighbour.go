// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"maps"
	"net/netip"
	"slices"

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

// question is what a namespace asks for a neighbour: with an address of its own, or the zero Addr.
func question(asker, hop netip.Addr) Header {
	return Header{Src: netip.AddrPortFrom(asker, 0), Dst: netip.AddrPortFrom(hop, 0)}
}

// isNeighbour reports whether the namespace answers, by a link, the question of another one for an
// address. For IPv4 it does so for all its addresses, if routing would take the question as a
// packet (net/ipv4/arp.c, arp_process); for IPv6 for those of the link (net/ipv6/ndisc.c,
// ndisc_recv_ns).
func (n *network) isNeighbour(link interception.Interface, q Header) bool {
	hop := q.Dst.Addr()
	if hop.Is6() {
		at, _ := n.link(link)
		return at.has(hop)
	}
	if !q.Src.Addr().IsValid() {
		return n.isLocal(hop)
	}
	return n.onInput(q, link) == 0
}

// finds reports whether the sender of what a tunnel carries finds the neighbour that is its next
// hop. The question and the answer are within packets of the tunnel, too, which have no mark and
// may go another way. What is unpacked has the mark of the outer packet.
func (f *follower) finds(p passage) bool {
	q := question(p.asker, p.hop)
	to, asked := f.carry(p.sender, p.link, q)
	if to == nil {
		return false
	}
	q.Mark = asked.Header.Mark
	if !to.isNeighbour(asked.Tunnel, q) {
		return false
	}
	back, answered := f.carry(to, asked.Tunnel, question(p.hop, p.asker))
	return back == p.sender && answered.Tunnel == p.link
}

// carry follows what a namespace itself sends by a tunnel to the namespace that unpacks it, and
// returns the outcome there; nil if there is none.
func (f *follower) carry(from *network, link interception.Interface, h Header) (*network, Outcome) {
	if f.asks == maxNesting {
		return nil, Outcome{}
	}
	at, _ := from.link(link)
	by := at.tunnel()
	g := follower{wires: f.wires, networks: f.networks, flows: maps.Clone(f.flows), inner: []passage{{by: by}}, asks: f.asks + 1}
	g.on = passage{packet: by.outer(Tunnel{Namespace: from.Name, Link: link}, 0, h), ttl: defaultTTL}
	for n := from; n != nil; {
		if n = g.pass(n); len(g.inner) == 0 {
			return n, g.outcomes[len(g.outcomes)-1]
		}
	}
	return nil, Outcome{}
}

func (l *Link) has(addr netip.Addr) bool {
	return slices.ContainsFunc(l.Addresses, func(p netip.Prefix) bool { return p.Addr() == addr })
}
