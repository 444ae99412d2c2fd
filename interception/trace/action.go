// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

// do performs an action, except Jump, which the caller performs.
func (p place) do(action interception.Action) verdict {
	switch action := action.(type) {
	case interception.Accept:
		return accepted
	case interception.Return:
		return returned
	case interception.Drop:
		return dropped
	case interception.Reject:
		return rejected
	case interception.TProxyTo:
		return p.tproxy(action)
	case interception.RedirectTo:
		return p.redirect(action)
	case interception.DNATTo:
		return p.bind(&p.header.Dst, action.Addr, action.Port)
	case interception.SNATTo:
		if action.Keep {
			action.Addr = p.header.Src.Addr()
		}
		return p.bind(&p.header.Src, action.Addr, action.Port)
	default:
		p.mark(action)
		p.classify(action)
		return undecided
	}
}

// mark performs the actions on marks. Those on a flow's mark do nothing to a packet that has no
// flow.
func (p place) mark(action interception.Action) {
	switch action := action.(type) {
	case interception.SetMark:
		p.header.Mark = action.Mark.Write(p.header.Mark)
	case interception.SaveMark:
		if p.flow != nil {
			p.flow.Mark = masked(p.header.Mark, action.Mask).Write(p.flow.Mark)
		}
	case interception.RestoreMark:
		if p.flow != nil {
			p.header.Mark = masked(p.flow.Mark, action.Mask).Write(p.header.Mark)
		}
	case interception.SetConnMark:
		if p.flow != nil {
			p.flow.Mark = action.Mark.Write(p.flow.Mark)
		}
	}
}

// masked returns the bits of the mark that a mask names; 0 names all.
func masked(mark, mask interception.Mark) interception.MarkBits {
	if mask == 0 {
		return interception.WholeMark(mark)
	}
	return interception.MarkBits{Value: mark & mask, Mask: mask}
}

// classify performs the actions on connection tracking. They have an effect only before it has seen
// the packet, so not on what comes back by lo. The first zone stays, and NoTrack has no effect
// after it (net/netfilter/nft_ct.c). A zone after NoTrack makes nf_tables track the packet after
// all; iptables would leave it untracked.
func (p place) classify(action interception.Action) {
	if p.flow != nil || p.zoned {
		return
	}
	switch action := action.(type) {
	case interception.SetZone:
		p.zone, p.zoned, p.untracked = action, true, false
	case interception.NoTrack:
		p.untracked = true
	}
}

// tproxy gives the packet to the proxy's socket, or drops it if there is no such socket. iptables
// does so; nf_tables would go on with the next rule, so package render adds a drop.
func (p place) tproxy(action interception.TProxyTo) verdict {
	taker, ok := p.proxyFor(action.Port)
	if !ok {
		return dropped
	}
	p.taker = taker
	p.header.Mark = action.Mark.Write(p.header.Mark)
	return accepted
}

// bind translates an address of the packet, and with it the flow's. Port 0 keeps the port; a kernel
// keeps a source port only if no other flow has it.
func (p place) bind(what *netip.AddrPort, addr netip.Addr, port interception.Port) verdict {
	port = cmp.Or(port, interception.Port(what.Port()))
	*what = netip.AddrPortFrom(addr, uint16(port))
	p.flow.Reply = p.header.tuple().reversed()
	return translated
}

// redirect translates the destination to a port of the namespace: of the loopback address
// in Output, of the link that the packet came by in Prerouting. The kernel drops the packet when
// that link has no address to send it to (net/netfilter/nf_nat_redirect.c).
func (p place) redirect(action interception.RedirectTo) verdict {
	to, ok := loopbackAddress(p.header.Dst.Addr()), true
	if p.hook == interception.Prerouting {
		link, _ := p.network.link(p.in)
		to, ok = link.redirectAddress(p.header.Dst.Addr())
	}
	if !ok {
		return dropped
	}
	return p.bind(&p.header.Dst, to, action.Port)
}
