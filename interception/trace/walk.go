// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

// Trace walks the packet through the world and returns where it ends and why. It is pure: the same
// world and packet give the same outcome, and neither changes. The error is [ErrWorld] or
// [ErrPacket] if the world or the packet could not exist.
func Trace(world World, packet Packet) (Outcome, error) {
	networks, err := world.networks()
	if err != nil {
		return Outcome{}, err
	}
	network, err := packet.start(networks)
	if err != nil {
		return Outcome{}, err
	}
	return newWalk(network, packet).run(), nil
}

// walk is a packet on its way through a namespace.
type walk struct {
	network  *network
	packet   Packet
	protocol interception.Protocol
	flags    interception.TCPFlag
	header   Header
	// in and out are the links that the hooks see; "" for no link.
	in, out interception.Interface
	// way is the result of routing.
	way route
	// owner is the packet's socket as the hooks see it; nil when they cannot.
	owner *Socket
	// sender is the socket that the packet started at in this namespace, nil if it came by a link.
	sender *Socket
	// flows are those that known is looked for in, in a [Journey].
	flows []*Flow
	// known is the existing flow. flow is the packet's, nil while it has none. confirmed reports
	// whether the flow outlives the packet: the packet has passed its last hook, or the last one
	// before lo.
	known, flow *Flow
	replies     bool // the packet goes in the direction of the flow's answers
	confirmed   bool
	through     bool
	zone        interception.SetZone
	zoned       bool // a rule chose the zone
	untracked   bool
	// taker is the socket that TProxyTo chose; listens reports whether it is a listener's.
	taker   *End
	listens bool
	// cause is why routing within a hook failed.
	cause Cause
	// ttl is how many times the packet can still be forwarded.
	ttl int
	// carried is the tunnel whose packet this one has within, or nil.
	carried *tunnel
	path    []Step
}

func newWalk(n *network, packet Packet) *walk {
	if packet.Src.Port() == 0 && (packet.Protocol != ICMP || packet.opens()) {
		packet.Src = netip.AddrPortFrom(packet.Src.Addr(), EphemeralPort)
	}
	return &walk{
		network: n, packet: packet, protocol: packet.Protocol, flags: packet.flags(), header: packet.header(), known: packet.Flow, ttl: defaultTTL,
	}
}

// run walks from the packet's origin to its end in the namespace.
func (w *walk) run() Outcome {
	var end Outcome
	switch origin := w.packet.From.(type) {
	case Socket:
		w.sender = &origin
		end = w.leave(origin.Transparent)
	case Tunnel:
		end = w.leave(false)
	case Arrival:
		w.search()
		end = w.arrive(origin.Link)
	}
	end.Packet, end.Namespace, end.Header, end.Path = w.packet, w.network.Name, w.header, w.path
	end.Flow = w.leaves(end)
	return end
}

// leave walks from a socket to the outgoing link, and on if that is lo. It fills in the packet's
// source.
func (w *walk) leave(transparent bool) Outcome {
	way, cause := w.routeOut(transparent)
	if cause != 0 {
		return Outcome{Verdict: Unroutable, Cause: cause}
	}
	if cause := w.network.onOutput(way.link, w.header.Src.Addr()); cause != 0 {
		return Outcome{Verdict: Unroutable, Cause: cause, Link: way.link.Name}
	}
	if self, packs := w.packet.From.(Tunnel); packs && way.link.Name == self.Link {
		return Outcome{Verdict: Unroutable, Cause: Circular, Link: self.Link}
	}
	w.search()
	w.owner, w.way, w.out = w.sender, way, way.link.Name
	if v := w.pass(interception.Output); v != undecided {
		return w.stop(v, w.out)
	}
	w.out = w.way.link.Name
	if v := w.pass(interception.Postrouting); v != undecided {
		return w.stop(v, w.out)
	}
	w.confirmed, w.through = w.flow != nil, true
	if w.out != loopback {
		return Outcome{Verdict: Sent, Link: w.out}
	}
	return w.arrive(loopback)
}

// routeOut routes a packet from a socket or a tunnel, and gives it a source if it has none.
func (w *walk) routeOut(transparent bool) (route, Cause) {
	way, cause := w.network.route(w.header.selectors(loopback))
	if cause != 0 || w.packet.Src.Addr().IsValid() {
		return way, cause
	}
	source := w.network.source(way, w.packet.Dst.Addr(), transparent)
	w.packet.Src = netip.AddrPortFrom(source, w.packet.Src.Port())
	w.header.Src = w.packet.Src
	_, packs := w.packet.From.(Tunnel)
	switch {
	case !source.IsValid():
		return way, NoRoute
	case source.Is4() && !packs: // connect(2) looks up again (include/net/route.h, ip_route_connect); IPv6 does not
		return w.network.route(w.header.selectors(loopback))
	default:
		return way, 0
	}
}

// arrive walks from a link to a socket. It knows nothing of the packet's earlier way.
func (w *walk) arrive(link interception.Interface) Outcome {
	w.in, w.out, w.owner = link, "", nil
	// A packet that comes back by lo was routed when it left, and keeps that route.
	if cause := onArrival(w.header); link != loopback && cause != 0 {
		return Outcome{Verdict: Unroutable, Cause: cause, Link: link}
	}
	if v := w.pass(interception.Prerouting); v != undecided {
		return w.stop(v, link)
	}
	switch cause := w.network.onInput(w.header, link); {
	case link == loopback || cause == 0:
	case cause == NotLocal && w.network.Forwarding(interception.FamilyOf(w.header.Dst.Addr())):
		return w.forward()
	default:
		return Outcome{Verdict: Unroutable, Cause: cause, Link: link}
	}
	if v := w.pass(interception.Input); v != undecided {
		return w.stop(v, link)
	}
	w.confirmed, w.through = w.flow != nil, true
	end := w.deliver()
	end.Link = link
	return end
}

// forward walks from Prerouting to the link by which a packet that is not local leaves.
func (w *walk) forward() Outcome {
	way, cause := w.network.route(w.header.selectors(w.in))
	if cause != 0 {
		return Outcome{Verdict: Unroutable, Cause: cause}
	}
	if w.ttl--; w.ttl == 0 {
		return Outcome{Verdict: Unroutable, Cause: Expired, Link: way.link.Name}
	}
	w.way, w.out = way, way.link.Name
	for _, hook := range []interception.Hook{interception.Forward, interception.Postrouting} {
		if v := w.pass(hook); v != undecided {
			return w.stop(v, w.out)
		}
	}
	w.confirmed, w.through = w.flow != nil, true
	return Outcome{Verdict: Sent, Link: w.out}
}

// hop returns the address of the neighbour that the packet goes to.
func (w *walk) hop() netip.Addr {
	if w.way.gateway.IsValid() {
		return w.way.gateway
	}
	return w.header.Dst.Addr()
}

// reroute routes the packet again, after the steps since the given one changed it in Output, and
// reports whether there is a route. The outgoing link that rules see stays.
func (w *walk) reroute(since int) bool {
	way, cause := w.network.route(w.header.selectors(loopback))
	if cause != 0 {
		w.cause = cause
		return false
	}
	for i := len(w.path) - 1; i >= since && way.link != w.way.link; i-- {
		if w.path[i].Changed() {
			w.path[i].Rerouted = true
			break
		}
	}
	w.way, w.cause = way, w.network.onOutput(way.link, w.header.Src.Addr())
	return w.cause == 0
}

// stop returns the outcome of a walk that ends within a hook.
func (w *walk) stop(v verdict, link interception.Interface) Outcome {
	end := Outcome{Verdict: v.verdict(), Link: link}
	if v == unroutable {
		end.Cause = w.cause
		if w.cause != Martian {
			end.Link = ""
		}
	}
	return end
}
