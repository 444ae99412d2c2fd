// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// Journey is a packet's way through the namespaces of a world.
type Journey struct {
	// Outcomes are the packet's outcomes in the namespaces, in the order of its way. Each but the
	// last is Sent, or Delivered to a tunnel. Between what a tunnel packs and unpacks are the
	// outcomes of the outer packet.
	Outcomes []Outcome
	// Flows are what the namespaces know after the packet.
	Flows Flows
}

// Flows are what connection tracking and the sockets know in each namespace, by its name.
type Flows map[string][]*Flow

// Follow walks the packet through the world like [Trace], and then on from namespace to namespace,
// by wires and tunnels, to its end. The flows come from an earlier [Journey], or are nil; the
// packet's own joins them. Nothing that is given changes. Follow returns the errors of [Trace].
//
// What leaves by a wire goes to the end of it that has the address of the next hop; without a known
// next hop, as for the default route that links imply, to the other one of two ends. A mark stays
// within its namespace. A tunnel's outer packet has the mark of the inner one, and what is unpacked
// has the mark of the outer one, as in the kernel (net/core/skbuff.c, skb_scrub_packet).
//
// A packet that is sent by a link at no wire ends there.
func Follow(world World, packet Packet, flows Flows) (Journey, error) {
	networks, err := world.networks()
	if err != nil {
		return Journey{}, err
	}
	n, err := packet.start(networks)
	if err != nil {
		return Journey{}, err
	}
	wires, _ := world.wires()
	f := follower{wires: wires, networks: networks, flows: maps.Clone(flows), on: passage{packet: packet, ttl: defaultTTL}}
	if f.flows == nil {
		f.flows = Flows{}
	}
	if packet.Flow != nil {
		f.keep(n.Name, packet.Flow)
	}
	for n != nil {
		n = f.pass(n)
	}
	return Journey{Outcomes: f.outcomes, Flows: f.flows}, nil
}

// End returns the last outcome: where the packet ended. Its Answer and Next are the packets that
// follow, with the Flows of the journey. The zero Journey has the zero Outcome.
func (j Journey) End() Outcome {
	if len(j.Outcomes) == 0 {
		return Outcome{}
	}
	return j.Outcomes[len(j.Outcomes)-1]
}

// String returns the names of the namespaces in the order of the way, and the end in one line, such
// as "pod, node, proxy: delivered to ...". For one namespace it is that of its outcome.
func (j Journey) String() string {
	var names []string
	for i, o := range j.Outcomes {
		if i == 0 || o.Namespace != j.Outcomes[i-1].Namespace {
			names = append(names, o.Namespace)
		}
	}
	if len(j.Outcomes) <= 1 {
		return j.End().String()
	}
	return strings.Join(names, ", ") + ": " + j.End().String()
}

// Report returns the reports of all outcomes, each after the name of its namespace if there are
// several.
func (j Journey) Report() string {
	if len(j.Outcomes) <= 1 {
		return j.End().Report()
	}
	var b strings.Builder
	for _, o := range j.Outcomes {
		_, _ = fmt.Fprintf(&b, "%s: %s", o.Namespace, o.Report())
	}
	return b.String()
}

// passage is a packet on its way, within a tunnel or not.
type passage struct {
	packet Packet
	ttl    int
	// owner is the socket that sent what is within the packet of a tunnel, if it is of the same
	// namespace.
	owner *Socket
	// by is the tunnel that carries the packet and hop its next hop there, asker who asks for it.
	by         tunnel
	hop, asker netip.Addr
	// sender is the namespace that has put it into the tunnel, and link its end of the tunnel.
	sender *network
	link   interception.Interface
}

// defaultTTL is the kernel's for what sockets and tunnels send (IPDEFTTL).
const defaultTTL = 64

// maxNesting is how many packets a packet can be within, before the kernel drops it
// (linux/netdevice.h, XMIT_RECURSION_LIMIT).
const maxNesting = 8

// follower follows a packet.
type follower struct {
	wires    []Wire
	networks []*network
	flows    Flows
	on       passage
	inner    []passage // packets within it, the innermost one first
	outcomes []Outcome
	// asks is how many questions for a neighbour it follows, each for the sake of the one before.
	asks int
}

// keep adds a flow to those of a namespace, or replaces what was known of it.
func (f *follower) keep(namespace string, flow *Flow) {
	all := slices.Clone(f.flows[namespace])
	same := func(o *Flow) bool {
		return o.Protocol == flow.Protocol && o.zone() == flow.zone() && o.Untracked == flow.Untracked && o.Original == flow.Original
	}
	if i := slices.IndexFunc(all, same); i >= 0 {
		all[i] = flow
	} else {
		all = append(all, flow)
	}
	f.flows[namespace] = all
}

// pass walks the packet through a namespace, and returns where it goes on; nil at its end.
func (f *follower) pass(n *network) *network {
	w := newWalk(n, f.on.packet)
	w.flows, w.ttl, w.sender = f.flows[n.Name], f.on.ttl, f.on.owner
	if len(f.inner) > 0 {
		w.carried = &f.inner[len(f.inner)-1].by
	}
	end := w.run()
	if end.Flow != nil {
		f.keep(n.Name, end.Flow)
	}
	f.outcomes, f.on.ttl = append(f.outcomes, end), w.ttl
	switch {
	case end.Verdict == Delivered && end.Tunnel != "":
		return f.unpack(n, end)
	case end.Verdict != Sent:
		return nil
	}
	link, _ := n.link(end.Link)
	if by := link.tunnel(); by.port != 0 {
		return f.pack(n, w, by)
	}
	return f.cross(w)
}

// cross sends the packet over a wire.
func (f *follower) cross(w *walk) *network {
	from := WireEnd{w.network.Name, w.out}
	ends := wireAt(f.wires, from)
	if ends == nil {
		return nil
	}
	hop := w.hop()
	asker := w.network.asker(w.out, w.header, hop)
	for _, to := range ends {
		n := named(f.networks, to.Namespace)
		known := w.way.anyone && len(ends) == 2
		if to == from || !known && !n.isNeighbour(to.Link, question(asker, hop)) {
			continue
		}
		at := Arrival{Namespace: to.Namespace, Link: to.Link}
		if from.Namespace == to.Namespace {
			at.Mark = w.header.Mark
		}
		f.on.packet = w.arriving(at)
		return n
	}
	last := &f.outcomes[len(f.outcomes)-1]
	last.Verdict, last.Cause = Unroutable, NoNeighbour
	return nil
}

// arriving returns the packet as it is now, coming by a link.
func (w *walk) arriving(at Arrival) Packet {
	return Packet{From: at, Protocol: w.protocol, Flags: w.packet.Flags, Src: w.header.Src, Dst: w.header.Dst}
}

// pack puts the packet into one of a tunnel, which starts in the same namespace.
func (f *follower) pack(n *network, w *walk, by tunnel) *network {
	link := w.out
	inner := passage{packet: w.arriving(Arrival{}), ttl: f.on.ttl, by: by, hop: w.hop(), sender: n, link: link}
	if !w.way.anyone {
		inner.asker = n.asker(link, w.header, inner.hop)
	} else {
		inner.hop = netip.Addr{}
	}
	f.inner = append(f.inner, inner)
	if len(f.inner) > maxNesting {
		f.outcomes[len(f.outcomes)-1].Verdict, f.outcomes[len(f.outcomes)-1].Cause = Unroutable, Circular
		return nil
	}
	f.on = passage{packet: by.outer(Tunnel{n.Name, link, w.header.Mark}, w.protocol, w.header), ttl: defaultTTL, owner: w.sender}
	return n
}

// outer returns the packet of a tunnel around one with the header.
func (t tunnel) outer(from Tunnel, protocol interception.Protocol, h Header) Packet {
	return Packet{
		From: from, Protocol: interception.ProtocolUDP,
		Src: netip.AddrPortFrom(netip.Addr{}, outerPort(protocol, h)), Dst: netip.AddrPortFrom(t.remote, uint16(t.port)),
	}
}

// outerPort returns the source port of what a tunnel sends: the same one for all packets of a
// connection in one direction. The kernel's choice is another one.
func outerPort(protocol interception.Protocol, h Header) uint16 {
	hash := fnv.New32a()
	_, _ = fmt.Fprint(hash, protocol, h.Src, h.Dst) // a hash takes all
	return EphemeralPort + uint16(hash.Sum32()%(1<<14))
}

// unpack goes on with the packet that was in a tunnel, in the namespace of its far end.
func (f *follower) unpack(n *network, end Outcome) *network {
	inner := f.inner[len(f.inner)-1]
	f.inner = f.inner[:len(f.inner)-1]
	inner.packet.From = Arrival{Namespace: n.Name, Link: end.Tunnel, Mark: end.Header.Mark}
	f.on = inner
	if inner.hop.IsValid() && !f.finds(inner) {
		f.outcomes = append(f.outcomes, Outcome{
			Packet: inner.packet, Verdict: Unroutable, Cause: NoNeighbour, Namespace: n.Name, Link: end.Tunnel, Header: inner.packet.header(),
		})
		return nil
	}
	return n
}

// errTunnel refuses packets that only a [Journey] makes.
var errTunnel = errors.New("a tunnel sends what a namespace sends by it: start at a Socket or an Arrival")
