// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"net/netip"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// deliver finds the sockets of packets that have passed Input.
func (e *engine) deliver(t thread) {
	if t.taker == nobody {
		connected, rest := e.split(t, e.connected(t))
		connected.taker = connection
		e.hand(connected)
		for _, c := range e.listeners(t.dst.address, t.dst.port) {
			taken, none := e.split(rest, c.where)
			taken.taker, taken.listens = c.value, true
			e.hand(taken)
			rest = none
		}
		e.stop(rest, ending{verdict: trace.Refused}, nil)
		return
	}
	e.hand(t)
}

// hand ends the packets that a socket takes. A listener refuses packets that open no connection.
func (e *engine) hand(t thread) {
	if t.listens {
		takes, refused := e.split(t, e.opens())
		e.stop(refused, ending{verdict: trace.Refused}, nil)
		t = takes
	}
	e.stop(t, ending{verdict: trace.Delivered}, nil)
}

// listeners returns those that the kernel would choose, by their places in the namespace.
func (e *engine) listeners(to address, p port) []choice[int] {
	var exact, families, all []choice[int]
	for i, l := range e.net.Listeners {
		where := e.and(e.protocol(l.Protocol), e.portIn(p, interception.Ports(l.Port)))
		switch {
		case !l.Address.IsValid():
			all = append(all, choice[int]{i, where})
		case l.Address.IsUnspecified():
			families = append(families, choice[int]{i, e.and(where, e.ofFamily(interception.FamilyOf(l.Address)))})
		default:
			exact = append(exact, choice[int]{i, e.and(where, e.isAddress(to, l.Address))})
		}
	}
	return first(e.question, append(append(exact, families...), all...))
}

// connected returns the packets whose connection a socket already has.
func (e *engine) connected(t thread) ref {
	takes := e.ite(e.variable(e.boundDst), e.sameEndpoint(t.dst, own(flowDst)), e.sameEndpoint(t.dst, own(ownDst)))
	takes = e.and(takes, e.ite(e.variable(e.boundSrc), e.sameEndpoint(t.src, own(flowSrc)), e.sameEndpoint(t.src, own(ownSrc))))
	secondOpening := e.and(e.protocol(interception.ProtocolTCP), e.opens())
	alive := e.and(e.not(e.opens()), e.sameEndpoint(t.dst, own(ownDst)), e.sameEndpoint(t.src, t.sent))
	return e.without(e.ite(e.variable(e.known), e.and(e.variable(e.socket), takes), alive), secondOpening)
}

// tproxy gives packets to the proxy's socket, and drops them if there is no such socket.
func (p *passage) tproxy(r *rule, t thread, action interception.TProxyTo) {
	t = p.redirecting(r, t)
	connected, rest := p.split(t, p.connected(t))
	transparent, other := p.split(connected, p.and(p.variable(p.known), p.variable(p.socketTransparent)))
	transparent.taker, transparent.listens = connection, false
	for _, c := range p.proxies(t, action.Port) {
		taken, none := p.split(rest, c.where)
		taken.taker, taken.listens = c.value, true
		p.handedOver(taken, action)
		rest = none
	}
	p.handedOver(transparent, action)
	p.stop(other, ending{verdict: trace.Dropped}, r)
	p.stop(rest, ending{verdict: trace.Dropped}, r)
}

func (p *passage) handedOver(t thread, action interception.TProxyTo) {
	t.mark = t.mark.write(givenMark(action.Mark.Value), action.Mark.Mask)
	p.add(&p.accepted, t)
}

// proxies returns the transparent listeners that TProxyTo finds: at the first address of the link
// that a packet came by.
func (p *passage) proxies(t thread, to interception.Port) []choice[int] {
	l := p.net.link(t.in)
	if l == nil { // without a world, every port has one
		return []choice[int]{{0, always}}
	}
	var found []choice[int]
	for _, family := range []interception.Family{interception.IPv4, interception.IPv6} {
		at := t.dst.address
		if addr, ok := firstOf(*l, family); ok {
			at = address{given, addr}
		}
		for _, c := range p.listeners(at, port{given, uint16(to)}) {
			if p.net.Listeners[c.value].Transparent {
				found = append(found, choice[int]{c.value, p.and(p.ofFamily(family), c.where)})
			}
		}
	}
	return found
}

func firstOf(l trace.Link, family interception.Family) (netip.Addr, bool) {
	for _, prefix := range l.Addresses {
		if family.Covers(prefix.Addr()) {
			return prefix.Addr(), true
		}
	}
	return netip.Addr{}, false
}
