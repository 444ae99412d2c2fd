// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

// deliver finds the socket for a packet that has passed Input: the one that TProxyTo chose, one
// that has the connection, or a listener. Listeners refuse packets that do not begin a connection.
func (w *walk) deliver() Outcome {
	if w.carried != nil {
		if link, ok := w.network.unpacks(*w.carried, w.header); ok {
			return Outcome{Verdict: Delivered, Tunnel: link}
		}
	}
	taker := w.taker
	if taker == nil {
		taker = w.connected()
	}
	if taker == nil {
		listener, ok := w.network.listener(w.protocol, w.header.Dst)
		if w.protocol == ICMP {
			listener, ok = Listener{Name: "kernel", Protocol: ICMP}, w.packet.opens()
		}
		if !ok {
			return Outcome{Verdict: Refused}
		}
		taker = w.accepted(listener)
	}
	if w.listens && !w.packet.opens() {
		return Outcome{Verdict: Refused}
	}
	return w.hand(taker)
}

// accepted returns the listener's socket for the packet, if the listener takes it.
func (w *walk) accepted(l Listener) *End {
	w.listens = true
	return &End{Local: w.header.Dst, Remote: w.header.Src, Listener: l}
}

// connected returns the socket that already has the packet's connection; nil if there is none. For
// a living connection without a flow, all that is known is that the socket expects the packet as it
// was sent.
func (w *walk) connected() *End {
	if w.packet.opens() && w.protocol != interception.ProtocolUDP {
		return nil // the socket of a connection takes no second opening
	}
	if w.known != nil {
		for _, end := range []*End{w.known.Opener, w.known.Taker} {
			if end.takes(w.header) {
				return end
			}
		}
		return nil
	}
	alive := &End{Local: w.packet.Dst, Remote: w.packet.Src}
	if w.packet.opens() || !alive.takes(w.header) {
		return nil
	}
	alive.Listener, _ = w.network.listener(w.protocol, w.header.Dst)
	// TProxyTo did not hand this connection over, whatever listens.
	alive.Listener.Transparent = false
	return alive
}

// hand returns the outcome of a packet that a socket takes.
func (w *walk) hand(to *End) Outcome {
	if w.listens && w.protocol == interception.ProtocolTCP && to.Listener.Mark == 0 && w.network.acceptsMarks() {
		to.Inherited = w.header.Mark
	}
	w.taker = to
	end := Outcome{Verdict: Delivered, Listener: to.Listener}
	if w.known != nil && to == w.known.Opener {
		opener := to.Socket
		end.Socket = &opener
		return end
	}
	if to.Listener != (Listener{}) {
		end.OriginalDst = w.packet.Dst
	}
	return end
}

// leaves returns the flow after the packet, with its ends; a flow that the packet was not found in
// stays the same.
func (w *walk) leaves(end Outcome) *Flow {
	flow := w.flow
	switch {
	// The sockets are still the same.
	case w.confirmed && w.known != nil && w.known.Untracked:
		flow.Opener, flow.Taker = w.known.Opener, w.known.Taker
		return flow
	case w.confirmed:
	case w.through && w.known == nil:
		flow = &Flow{Protocol: w.protocol, Untracked: true, Original: w.packet.header().tuple(), Reply: w.header.tuple().reversed()}
	default:
		return w.known
	}
	if !w.replies {
		w.joins(flow, end.Verdict == Delivered)
	}
	return flow
}

// joins records the ends of the flow of a packet in the opener's direction that came through.
func (w *walk) joins(flow *Flow, taken bool) {
	if socket, ok := w.packet.From.(Socket); ok && flow.Opener == nil {
		flow.Opener = &End{Local: w.packet.Src, Remote: w.packet.Dst, Socket: socket}
	}
	if taken {
		flow.Taker = w.taker
	}
}

// proxyFor returns the transparent socket that TProxyTo finds for the packet: the one that has its
// connection, else the listener on the port, at the first address of the link that the packet came
// by (net/ipv4/netfilter/nf_tproxy_ipv4.c, nf_tproxy_laddr4).
func (w *walk) proxyFor(port interception.Port) (*End, bool) {
	if end := w.connected(); end != nil {
		return end, end.Listener.Transparent || end.Socket.Transparent
	}
	to := w.header.Dst.Addr()
	link, _ := w.network.link(w.in)
	for _, prefix := range link.Addresses {
		if prefix.Addr().Is4() == to.Is4() {
			to = prefix.Addr()
			break
		}
	}
	listener, ok := w.network.listener(w.protocol, netip.AddrPortFrom(to, uint16(port)))
	return w.accepted(listener), ok && listener.Transparent
}
