// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// journey is what becomes of a connection, by package trace or in the kernel.
type journey struct {
	// Relays are how many times the proxy of each node begins to relay it.
	Relays [2]int
	// Visit is what the application at its end sees; zero without an answer. Its client's port is left
	// out.
	Visit nodes.Visit
}

func (j journey) String() string {
	if j.Visit == (nodes.Visit{}) {
		return fmt.Sprintf("no answer, relayed %v", j.Relays)
	}
	return fmt.Sprintf("%s is answered as %s, relayed %v", j.Visit.Client.Addr(), j.Visit.Server, j.Relays)
}

// traveller follows a connection through both nodes by package trace.
type traveller struct {
	mesh   *mesh
	world  trace.World
	report strings.Builder
	result journey
	tunnel netip.AddrPort // where the connection goes that a tunnel carries
}

// travel follows a connection to its end. The error is that of package trace.
func (r *traveller) travel(from *nodes.Place, protocol interception.Protocol, to netip.AddrPort) error {
	packet := trace.Packet{From: trace.Socket{Namespace: from.Name}, Protocol: protocol, Dst: to}
	for at, goesOn := from, true; goesOn; {
		outcome, err := trace.Trace(r.world, packet)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(&r.report, "%s: %s\n%s", at.Name, outcome, outcome.Report())
		switch outcome.Verdict {
		case trace.Sent:
			var link interception.Interface
			if at, link = at.Peer(outcome.Link); at == nil {
				return fmt.Errorf("%s leads nowhere", outcome.Link)
			}
			packet = trace.Packet{
				From: trace.Arrival{Namespace: at.Name, Link: link}, Protocol: protocol, Src: outcome.Header.Src, Dst: outcome.Header.Dst,
			}
		case trace.Delivered:
			packet, goesOn = r.arrive(at, outcome)
		case trace.Unknown:
			return fmt.Errorf("trace does not know what becomes of %s", packet)
		case trace.Refused, trace.Dropped, trace.Unroutable, trace.Rejected:
			return nil
		}
	}
	return nil
}

// arrive returns the first packet of the connection by which the proxy relays one that has arrived,
// and false at the journey's end.
func (r *traveller) arrive(at *nodes.Place, o trace.Outcome) (trace.Packet, bool) {
	if !o.Listener.Proxy {
		r.result.Visit = nodes.Visit{Client: netip.AddrPortFrom(o.Header.Src.Addr(), 0), Server: o.Header.Dst}
		return trace.Packet{}, false
	}
	node := int(at.Name[len("pod-")] - '1')
	numbers, to := r.mesh.nodes[node].options.Numbers, o.OriginalDst
	socket := trace.Socket{Namespace: at.Name, Mark: numbers.ProxyMark.Value}
	packet := trace.Packet{Protocol: o.Packet.Protocol, Dst: to}
	inbound := o.Listener.Port == numbers.InboundPort
	switch port := interception.Port(to.Port()); {
	case o.Listener.Port == numbers.DNSPort:
		packet.Dst = r.mesh.resolver(interception.FamilyOf(o.Header.Dst.Addr()))
	case o.Listener.Port == numbers.TunnelPort && r.tunnel.IsValid():
		inbound, packet.Dst = true, r.tunnel
	case port == numbers.OutboundPort || port == numbers.InboundPort || port == numbers.TunnelPort:
		return trace.Packet{}, false // the proxy refuses what would come back
	case o.Listener.Port == numbers.OutboundPort && to.Addr().IsLoopback():
		return trace.Packet{}, false // likewise
	case o.Listener.Port == numbers.OutboundPort && r.mesh.served(to.Addr()):
		r.tunnel, packet.Dst = to, netip.AddrPortFrom(to.Addr(), uint16(numbers.TunnelPort))
	}
	if inbound && o.Header.Src.Addr() != packet.Dst.Addr() {
		socket.Transparent, packet.Src = true, netip.AddrPortFrom(o.Header.Src.Addr(), 0)
	}
	packet.From = socket
	r.result.Relays[node]++
	return packet, true
}

// travel follows a connection by package trace, and then opens it. It reports each difference, of
// the relays only if they are counted.
func (m *mesh) travel(world trace.World, from, network, to string, counted bool) journey {
	m.t.Helper()
	address, err := netip.ParseAddrPort(to)
	if err != nil {
		m.t.Fatal(err)
	}
	protocol := map[string]interception.Protocol{"tcp": interception.ProtocolTCP, "udp": interception.ProtocolUDP}[network]
	expected := traveller{mesh: m, world: world}
	if err := expected.travel(m.places[from], protocol, address); err != nil {
		m.t.Errorf("%v\n%s", err, expected.report.String())
	}
	before := [2]int{m.nodes[0].relayed(), m.nodes[1].relayed()}
	ctx, cancel := context.WithTimeout(m.t.Context(), 20*time.Second) // a datagram that gets lost tells nothing
	defer cancel()
	visit, err := m.places[from].Visit(ctx, network, address)
	if err == nil {
		visit.Client = netip.AddrPortFrom(visit.Client.Addr(), 0)
	}
	seen := journey{Visit: visit}
	for i, n := range m.nodes {
		seen.Relays[i] = n.relayed() - before[i]
	}
	if !counted {
		seen.Relays = expected.result.Relays
	}
	if seen != expected.result {
		m.t.Errorf("%s to %s: %s (%v), want by the trace: %s\n%s", from, to, seen, err, expected.result, expected.report.String())
	}
	return seen
}
