// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

// Trace walks the packet through the world and says where it ends and why. It is pure: the same world and packet give the same
// outcome, and neither is changed. The error is [ErrWorld] or [ErrPacket] when the one or the other could not exist.
func Trace(world World, packet Packet) (Outcome, error) {
	if err := world.validate(); err != nil {
		return Outcome{}, err
	}
	namespace, err := packet.start(world)
	if err != nil {
		return Outcome{}, err
	}
	if packet.Src.Port() == 0 {
		packet.Src = netip.AddrPortFrom(packet.Src.Addr(), EphemeralPort)
	}
	w := walk{namespace: namespace, protocol: packet.Protocol, header: Header{packet.Src, packet.Dst}}
	var end Outcome
	switch origin := packet.From.(type) {
	case Socket:
		end = w.leave(origin, &packet)
	case Arrival:
		end = w.arrive(origin.Link)
	}
	end.Packet, end.Namespace, end.Header, end.Path = packet, namespace.Name, w.header, w.path
	if end.Verdict == Delivered {
		end.OriginalDst = packet.Dst
	}
	return end, nil
}

// walk is a packet on its way.
type walk struct {
	namespace *Namespace
	protocol  interception.Protocol
	header    Header
	// in and out are the links that the hooks see; "" where there is none.
	in, out interception.Interface
	// owner is the socket that the packet comes from, as far as the hooks can see that; nil when they cannot.
	owner *Socket
	// boundDst and boundSrc say that connection tracking has settled the connection's translation.
	boundDst, boundSrc bool
	path               []Step
}

// leave walks from a socket to the link that the packet leaves by, and on when that is lo. It fills in the packet's source.
func (w *walk) leave(socket Socket, packet *Packet) Outcome {
	link, ok := w.namespace.route(w.header.Dst.Addr())
	if !ok {
		return Outcome{Verdict: Unroutable, Cause: NoRoute}
	}
	if !packet.Src.Addr().IsValid() {
		packet.Src = netip.AddrPortFrom(w.namespace.source(link, packet.Dst.Addr()), packet.Src.Port())
		w.header.Src = packet.Src
	}
	if cause := onOutput(link, w.header.Src.Addr()); cause != 0 {
		return Outcome{Verdict: Unroutable, Cause: cause, Link: link.Name}
	}
	w.owner, w.out = &socket, link.Name
	if !w.passes(interception.Output) {
		return Outcome{Verdict: Dropped, Link: w.out}
	}
	if link, ok = w.namespace.route(w.header.Dst.Addr()); !ok { // again: the destination may have changed
		return Outcome{Verdict: Unroutable, Cause: NoRoute}
	}
	w.out = link.Name
	if !w.passes(interception.Postrouting) {
		return Outcome{Verdict: Dropped, Link: w.out}
	}
	if link.Name != loopback {
		return Outcome{Verdict: Sent, Link: link.Name}
	}
	return w.arrive(loopback)
}

// arrive walks from a link to a listener. Nothing is known there about the way that the packet went before.
func (w *walk) arrive(link interception.Interface) Outcome {
	w.in, w.out, w.owner = link, "", nil
	// What comes back by lo was routed when it left, and keeps that route.
	if cause := onArrival(w.header); link != loopback && cause != 0 {
		return Outcome{Verdict: Unroutable, Cause: cause, Link: link}
	}
	if !w.passes(interception.Prerouting) {
		return Outcome{Verdict: Dropped, Link: link}
	}
	if cause := w.namespace.onInput(w.header); link != loopback && cause != 0 {
		return Outcome{Verdict: Unroutable, Cause: cause, Link: link}
	}
	if !w.passes(interception.Input) {
		return Outcome{Verdict: Dropped, Link: link}
	}
	listener, ok := w.namespace.listener(w.protocol, w.header.Dst)
	if !ok {
		return Outcome{Verdict: Refused, Link: link}
	}
	return Outcome{Verdict: Delivered, Link: link, Listener: listener}
}
