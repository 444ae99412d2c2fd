// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// nodeName is the name of the node's own network namespace, in traces and in the table.
const nodeName = "node"

// wiring is what package trace has to know of the node, apart from the rules: which pod has which
// address, and what the proxy does with a captured connection.
type wiring struct {
	expect  func(trace.World, trace.Packet) (trace.Outcome, error)
	numbers ambient.Numbers
	// pods are the pods' names by their addresses.
	pods map[netip.Addr]string
	// tunnelled are the addresses of the pods to which the proxy makes tunnels.
	tunnelled []netip.Addr
	// resolvers are where the proxy sends queries, one for each family.
	resolvers []netip.AddrPort
}

// age is how old a connection is when the walk follows a packet of it. The zero value means that
// the packet opens it.
type age uint8

const (
	// relayed: the connection was opened in an earlier world, by whose rules it was captured.
	relayed age = iota + 1
	// unseen: the connection was opened before there was any rule, so that connection tracking does
	// not know it.
	unseen
)

// walk follows a connection over the node, through the proxies that relay it.
type walk struct {
	wiring

	world trace.World
	age   age
	// earlier is the world in which a relayed connection was opened.
	earlier trace.World

	reports strings.Builder
	// proxies are the ports at which proxies took the connection.
	proxies []string
	// tunnel is the destination of the connection in the tunnel.
	tunnel netip.AddrPort
	// decided is the outcome with the rule that decides: the last one before a proxy takes the
	// connection.
	decided *trace.Outcome
}

// farthest is more namespaces and proxies than a connection meets.
const farthest = 12

// follow returns what becomes of a connection that begins with the packet.
func (w *walk) follow(packet trace.Packet) (expectation, error) {
	for range farthest {
		outcome, err := w.look(packet)
		if err != nil {
			return expectation{}, err
		}
		switch {
		case outcome.Verdict == trace.Sent:
			packet, err = w.cross(outcome)
		case outcome.Verdict == trace.Delivered && outcome.Listener.Proxy:
			packet, err = w.relay(outcome)
		default:
			return w.end(outcome), nil
		}
		if err != nil {
			return expectation{}, err
		}
	}
	return expectation{}, fmt.Errorf("trace a connection: it has not ended after %d namespaces and proxies", farthest)
}

// look returns the outcome of the packet, or of a later one of the same connection.
func (w *walk) look(packet trace.Packet) (trace.Outcome, error) {
	if w.age == relayed {
		return w.lookLater(packet)
	}
	if w.age == unseen {
		packet.Flags = interception.FlagACK
	}
	outcome, err := w.expect(w.world, packet)
	w.note(outcome)
	return outcome, err
}

// lookLater opens the connection in the earlier world, and returns the outcome of the packet after
// the answer. What became of the first packet decides about the others.
func (w *walk) lookLater(packet trace.Packet) (trace.Outcome, error) {
	first, err := w.expect(w.earlier, packet)
	if err != nil {
		return trace.Outcome{}, err
	}
	w.note(first)
	var other trace.Origin = trace.Socket{Namespace: first.Namespace}
	if first.Verdict == trace.Sent {
		other = trace.Arrival{Namespace: first.Namespace, Link: first.Link}
	}
	answer, err := w.expect(w.earlier, first.Answer(other))
	if err != nil {
		return trace.Outcome{}, err
	}
	next := first.Next()
	next.Flow = answer.Flow
	outcome, err := w.expect(w.world, next)
	w.reports.WriteString(outcome.Report() + "\n")
	return outcome, err
}

// note takes over the report of an outcome, and the rule that decides in it.
func (w *walk) note(o trace.Outcome) {
	w.reports.WriteString(o.Report() + "\n")
	if _, decided := o.Decisive(); decided && len(w.proxies) == 0 {
		w.decided = &o
	}
}

// cross returns the packet as it comes in at the other end of the link by which it was sent.
func (w *walk) cross(o trace.Outcome) (trace.Packet, error) {
	at := trace.Arrival{Namespace: w.pods[o.Header.Dst.Addr()], Link: podInterface}
	if at.Namespace == "" && o.Namespace != nodeName {
		at = trace.Arrival{Namespace: nodeName, Link: bridgeName}
	}
	if at.Namespace == "" {
		return trace.Packet{}, fmt.Errorf("trace a connection: no pod of the node has the address %s", o.Header.Dst.Addr())
	}
	return trace.Packet{From: at, Protocol: o.Packet.Protocol, Src: o.Header.Src, Dst: o.Header.Dst}, nil
}

// relay returns the first packet of the connection by which the proxy relays one that it took, as
// package ambienttest describes it.
func (w *walk) relay(o trace.Outcome) (trace.Packet, error) {
	port := o.Listener.Port
	w.proxies = append(w.proxies, fmt.Sprint(port))
	socket := trace.Socket{Namespace: o.Namespace, Mark: w.numbers.ProxyMark.Value}
	to := o.OriginalDst
	inbound := port == w.numbers.InboundPort || port == w.numbers.TunnelPort
	switch {
	case port == w.numbers.TunnelPort:
		to = w.tunnel
	case port == w.numbers.DNSPort:
		i := slices.IndexFunc(w.resolvers, func(r netip.AddrPort) bool { return r.Addr().Is4() == o.Header.Dst.Addr().Is4() })
		if i < 0 {
			return trace.Packet{}, fmt.Errorf("trace a connection: the proxy has no resolver for %s", o)
		}
		to = w.resolvers[i]
	case slices.Contains(w.tunnelled, to.Addr()) && !inbound:
		w.tunnel, to = to, netip.AddrPortFrom(to.Addr(), uint16(w.numbers.TunnelPort))
	}
	packet := trace.Packet{Protocol: o.Packet.Protocol, Dst: to}
	if inbound {
		socket.Transparent, packet.Src = true, netip.AddrPortFrom(o.Header.Src.Addr(), 0)
	}
	packet.From = socket
	return packet, nil
}

// end returns what is expected of a connection that ends like this.
func (w *walk) end(o trace.Outcome) expectation {
	e := expectation{captured: len(w.proxies) > 0}
	if w.decided != nil {
		e.decide(*w.decided)
	}
	e.ending = ending{proxies: strings.Join(w.proxies, " → ")}
	if o.Verdict == trace.Delivered {
		e.listener, e.client = o.Listener.Name, o.Header.Src.Addr()
	} else {
		e.failure = endingOf(o).failure
	}
	return e
}
