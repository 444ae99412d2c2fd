// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// Flow is what the kernel knows of a connection or exchange: its connection tracking entry, if any,
// and the sockets at its ends. [Outcome.Flow] is the flow after the first packet; pass it on in
// [Packet.Flow].
type Flow struct {
	// Protocol is TCP, UDP or [ICMP].
	Protocol interception.Protocol
	// Zone is the connection tracking zone of the entry.
	Zone uint16
	// ZoneDirection is the direction in which the entry is in Zone: in the other direction it is in
	// zone 0. AnyDirection stands for both.
	ZoneDirection interception.Direction
	// Original is the tuple of packets in the opener's direction as they enter the namespace or
	// leave its socket; Reply is that of the other direction. Without translation, one is the
	// reverse of the other.
	Original, Reply Tuple
	// Mark is the connection's mark (connmark).
	Mark interception.Mark
	// Untracked reports whether connection tracking has no entry and will find none: only the
	// sockets at its ends know the connection. Zone, Mark and nat then have no meaning.
	Untracked bool
	// Midstream reports whether the first packet that was seen did not open the connection.
	Midstream bool
	// Answered reports whether packets were seen in both directions: the connection is established.
	Answered bool
	// DstSettled and SrcSettled report whether nat has decided the destination (in Prerouting
	// or Output) and the source (in Input or Postrouting). It decides each once.
	DstSettled, SrcSettled bool
	// Opener is the socket that opened the connection and Taker the one that took it; nil if it is
	// outside the namespace.
	Opener, Taker *End
}

// Tuple is the source and destination of a direction.
type Tuple struct {
	Src, Dst netip.AddrPort
}

// End is a socket of a connection.
type End struct {
	// Local and Remote are the socket's own address and its peer's: packets with other addresses
	// are not for it.
	Local, Remote netip.AddrPort
	// Listener is the listener that took the connection; zero for an Opener.
	Listener Listener
	// Socket is the socket that opened the connection; zero for a Taker.
	Socket Socket
	// Inherited is the mark that the socket has of the packet which opened the connection: that of a
	// TCP listener without a mark, where net.ipv4.tcp_fwmark_accept is on.
	Inherited interception.Mark
}

func (h Header) tuple() Tuple { return Tuple{h.Src, h.Dst} }

func (t Tuple) reversed() Tuple { return Tuple{t.Dst, t.Src} }

// takes reports whether a packet with this header is for the socket.
func (e *End) takes(h Header) bool { return e != nil && e.Local == h.Dst && e.Remote == h.Src }

// Next returns a further packet of the sender, once the connection is established.
func (o Outcome) Next() Packet {
	next := o.Packet
	next.Flow = o.Flow
	if next.Protocol == interception.ProtocolTCP {
		next.Flags = interception.FlagACK
	}
	return next
}

// Answer returns the receiver's packet: SYN and ACK in answer to an opening packet, else ACK. The
// caller gives the origin: for a packet that was delivered, the socket that took it (transparent if
// its listener is Transparent, with the listener's mark or the inherited one unless it has one of
// its own); for one that was sent, the arrival by the same link.
func (o Outcome) Answer(from Origin) Packet {
	answer := Packet{From: from, Protocol: o.Packet.Protocol, Src: o.Header.Dst, Dst: o.Header.Src, Flow: o.Flow}
	if socket, ok := from.(Socket); ok {
		socket.Transparent = socket.Transparent || o.Listener.Transparent
		socket.Mark = cmp.Or(socket.Mark, o.Listener.Mark, o.inherited())
		answer.From = socket
	}
	if answer.Protocol == interception.ProtocolTCP {
		answer.Flags = interception.FlagACK
		if o.Packet.opens() {
			answer.Flags |= interception.FlagSYN
		}
	}
	return answer
}

// inherited returns the mark that the socket which took the packet has of the opening one.
func (o Outcome) inherited() interception.Mark {
	if o.Socket != nil || o.Flow == nil || o.Flow.Taker == nil {
		return 0
	}
	return o.Flow.Taker.Inherited
}

// track is connection tracking, which follows raw: it looks for the packet's flow in its zone, or
// begins one. A packet that it refuses stays without a flow: it is invalid.
func (w *walk) track() {
	zone := w.zone
	w.zone, w.zoned = interception.SetZone{}, false
	if w.flow != nil || w.untracked || !w.plausible() {
		return // a packet that comes back by lo brings its flow along
	}
	tuple := w.header.tuple()
	if at := slices.IndexFunc(w.flows, func(f *Flow) bool { return f.has(w.protocol, zone, tuple) }); at >= 0 {
		w.known = w.flows[at]
	}
	if w.known.has(w.protocol, zone, tuple) {
		w.recognise(*w.known, tuple == w.known.Reply)
	} else if w.begins() {
		w.flow = &Flow{
			Protocol: w.protocol, Zone: zone.Zone, ZoneDirection: zone.Direction,
			Original: tuple, Reply: tuple.reversed(), Midstream: !w.packet.opens(),
		}
	}
}

// search chooses the flow of the packet, whatever its zone, among those of its [Journey].
func (w *walk) search() {
	tuple := w.header.tuple()
	for _, f := range w.flows {
		if f.Protocol == w.protocol && (tuple == f.Original || tuple == f.Reply) && (w.known == nil || w.known.Untracked) {
			w.known = f
		}
	}
}

// has reports whether connection tracking finds the flow for such a packet. It compares the zones
// of the packet's direction (nf_conntrack_zones.h, nf_ct_zone_equal).
func (f *Flow) has(protocol interception.Protocol, zone interception.SetZone, tuple Tuple) bool {
	if f == nil || f.Untracked || f.Protocol != protocol {
		return false
	}
	in := func(d interception.Direction) bool { return f.zone().For(d) == zone.For(d) }
	return tuple == f.Original && in(interception.DirectionOriginal) || tuple == f.Reply && in(interception.DirectionReply)
}

// zone returns the zone as a rule sets it.
func (f *Flow) zone() interception.SetZone {
	return interception.SetZone{Zone: f.Zone, Direction: f.ZoneDirection}
}

// recognise makes the flow the packet's, in one of its directions. Before an answer, the opener of
// a connection can only repeat the opening or reset it (nf_conntrack_proto_tcp.c, tcp_conntracks).
func (w *walk) recognise(flow Flow, replies bool) {
	waits := w.protocol == interception.ProtocolTCP && !flow.Answered && !flow.Midstream
	if !replies && waits && !w.packet.opens() && w.flags&interception.FlagRST == 0 {
		return
	}
	flow.Answered = flow.Answered || replies
	w.flow, w.replies, w.confirmed = &flow, replies, true
}

// plausible reports whether connection tracking accepts the flags for TCP
// (nf_conntrack_proto_tcp.c, tcp_valid_flags).
func (w *walk) plausible() bool {
	const fin, syn, rst, ack, urg = interception.FlagFIN, interception.FlagSYN, interception.FlagRST, interception.FlagACK, interception.FlagURG
	combinations := []interception.TCPFlag{syn, syn | urg, syn | ack, rst, rst | ack, fin | ack, fin | ack | urg, ack, ack | urg}
	return w.protocol != interception.ProtocolTCP || slices.Contains(combinations, w.flags&^interception.FlagPSH)
}

// begins reports whether a packet without a flow can be the first of one: an opening packet and, as
// the kernel is loose by default (net.netfilter.nf_conntrack_tcp_loose), one mid-connection.
func (w *walk) begins() bool {
	if w.protocol != interception.ProtocolTCP {
		return w.packet.opens()
	}
	answers := w.flags&(interception.FlagSYN|interception.FlagACK) == interception.FlagSYN|interception.FlagACK
	return w.flags&(interception.FlagFIN|interception.FlagRST) == 0 && !answers
}

// state returns the packet's connection tracking state.
func (w *walk) state() interception.ConnState {
	switch {
	case w.untracked:
		return interception.StateUntracked
	case w.flow == nil:
		return interception.StateInvalid
	case w.replies || w.flow.Answered:
		return interception.StateEstablished
	default:
		return interception.StateNew
	}
}

// direction returns the packet's direction within its flow; AnyDirection without a flow.
func (w *walk) direction() interception.Direction {
	switch {
	case w.flow == nil:
		return interception.AnyDirection
	case w.replies:
		return interception.DirectionReply
	default:
		return interception.DirectionOriginal
	}
}

// translate gives the packet the addresses that its flow is bound to: the destination in Prerouting
// and Output, the source in Input and Postrouting (net/netfilter/nf_nat_core.c, nf_nat_packet).
func (w *walk) translate(hook interception.Hook) {
	to := w.flow.Reply.reversed()
	if w.replies {
		to = w.flow.Original.reversed()
	}
	if hook == interception.Input || hook == interception.Postrouting {
		w.header.Src = to.Src
	} else {
		w.header.Dst = to.Dst
	}
}
