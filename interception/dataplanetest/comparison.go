// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// Comparison is the fate of a packet and of its answer, in package trace and in the kernel.
type Comparison struct {
	// Probe is what was sent.
	Probe Probe
	// Expected are the traces of the packet and, as long as each arrives, of its answer and, over
	// TCP, of the next packet and its answer. The answer to a connection that is refused is a
	// reset.
	Expected []trace.Outcome
	// Observed is the kernel's result.
	Observed Observation
	// Disagreement is how the kernel differs from the trace; "" if it does not.
	Disagreement string
}

// Report returns the comparison in several lines, with the rules that each expected packet met.
func (c Comparison) Report() string {
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "%s\nprobe:  %s\nkernel: %s\n", c.Disagreement, c.Probe, c.Observed)
	for _, outcome := range c.Expected {
		_, _ = fmt.Fprintf(&b, "trace:  %s\n%s", outcome, outcome.Report())
	}
	return b.String()
}

// Compare sends a real packet, and compares the result with that of package trace: whether it
// arrives, at which listener, with which original destination and source, and whether the answer
// comes back. The world must be that of the pod ([Pod.World]), and the packet the first one of its
// connection. The errors are those of [Pod.Send] and of trace.Trace.
func (p *Pod) Compare(ctx context.Context, world trace.World, packet trace.Packet) (Comparison, error) {
	if packet.Flags != 0 || packet.Flow != nil {
		return Comparison{}, fmt.Errorf("compare packet: %w: %s is not the first packet of a connection", ErrProbe, packet)
	}
	expected, err := p.conversation(world, packet)
	if err != nil {
		return Comparison{}, fmt.Errorf("compare packet: %w", err)
	}
	c := Comparison{Probe: probeOf(packet), Expected: expected}
	silence := p.options.DropAfter
	if hearsNothing(world, expected) {
		silence = 0 // the kernel can confirm it at once
	}
	if c.Observed, err = p.send(ctx, c.Probe, silence); err != nil {
		return Comparison{}, err
	}
	c.Disagreement = c.disagreement(world)
	return c, nil
}

// World returns the model of the pod with a plan for package trace, with its real links and
// listeners.
func (p *Pod) World(plan *interception.Plan) (trace.World, error) {
	world := trace.Sidecar(plan, trace.SidecarOptions{Addresses: []netip.Prefix{}})
	pod := &world.Namespaces[0]
	links, err := p.links()
	if err != nil {
		return trace.World{}, fmt.Errorf("describe pod: %w", err)
	}
	pod.Links, pod.Listeners, pod.Forwards = links, nil, p.options.MachineLink != ""
	for _, port := range p.options.Ports {
		pod.Listeners = append(pod.Listeners, listeners("application", port, false)...)
	}
	for _, port := range p.options.ProxyPorts {
		pod.Listeners = append(pod.Listeners, listeners("proxy", port, true)...)
	}
	return world, nil
}

// listeners returns the harness's listeners on a port.
func listeners(name string, port uint16, proxy bool) []trace.Listener {
	tcp := trace.Listener{
		Name: fmt.Sprintf("%s-%d", name, port), Proxy: proxy, Protocol: interception.ProtocolTCP, Port: interception.Port(port), Transparent: proxy,
	}
	udp := tcp
	udp.Protocol = interception.ProtocolUDP
	return []trace.Listener{tcp, udp}
}

// conversation returns the traces of a packet and of the following ones, until one is lost.
func (p *Pod) conversation(world trace.World, packet trace.Packet) ([]trace.Outcome, error) {
	first, err := trace.Trace(world, packet)
	if err != nil {
		return nil, err
	}
	all := []trace.Outcome{first}
	if first.Verdict == trace.Refused && packet.Protocol == interception.ProtocolTCP {
		reset := first.Answer(trace.Socket{UID: noOwner, GID: noOwner, Transparent: true})
		reset.Flags = interception.FlagRST | interception.FlagACK
		answer, err := trace.Trace(world, reset)
		return append(all, answer), err
	}
	for arrives(all[len(all)-1]) && !silenced(world, all[len(all)-1]) {
		last := all[len(all)-1]
		answer, err := trace.Trace(world, last.Answer(p.answerer(world, last)))
		if err != nil {
			return nil, err
		}
		all = append(all, answer)
		if packet.Protocol == interception.ProtocolUDP || !returns(last, answer) || len(all) > 2 {
			break
		}
		further := first.Next()
		further.Flow = answer.Flow
		next, err := trace.Trace(world, further)
		if err != nil {
			return nil, err
		}
		all = append(all, next)
	}
	return all, nil
}

// hearsNothing reports whether the sender of the first packet gets no answer, not even a refusal.
func hearsNothing(world trace.World, expected []trace.Outcome) bool {
	first := expected[0]
	switch {
	case losesRefusal(world, first):
		return true
	case len(expected) > 1:
		return !returns(first, expected[1])
	default:
		return arrives(first) || first.Verdict == trace.Dropped || first.Verdict == trace.Unroutable && len(first.Path) > 0 && !toldByRoute(first)
	}
}

// toldByRoute reports whether a socket learns that the second route of its datagram, after Output,
// refuses it: the kernel returns the route's error. TCP tries again instead.
func toldByRoute(o trace.Outcome) bool {
	_, sent := o.Packet.From.(trace.Socket)
	return sent && o.Packet.Protocol == interception.ProtocolUDP && (o.Cause == trace.Unreachable || o.Cause == trace.Discarded)
}

// losesRefusal reports whether the kernel loses its own reset or ICMP error. For IPv4, it does so
// if no link has the source address, which then has no route (net/ipv4/route.c,
// ip_route_output_key_hash_rcu). For IPv6, it loses a reset to ::1, because it looks for a route by
// the link with the refusing address, and only lo leads there (net/ipv6/tcp_ipv6.c,
// tcp_v6_send_response: rt6_need_strict).
func losesRefusal(world trace.World, refused trace.Outcome) bool {
	if refused.Verdict != trace.Refused {
		return false
	}
	at, there := linkOf(world, refused.Header.Dst.Addr())
	if refused.Header.Dst.Addr().Is4() {
		return !there
	}
	tcp := refused.Packet.Protocol == interception.ProtocolTCP
	return tcp && there && refused.Header.Src.Addr() == netip.IPv6Loopback() && at != "lo"
}

// silenced reports whether the receiver of the packet cannot answer: a socket that is not
// transparent where the address is not local (except that TCP over IPv6 is answered all the same),
// and an IPv6 neighbour that gets a packet from a loopback address (RFC 4291 section 2.5.3).
func silenced(world trace.World, o trace.Outcome) bool {
	if o.Verdict == trace.Sent {
		return o.Header.Src.Addr() == netip.IPv6Loopback()
	}
	_, there := linkOf(world, o.Header.Dst.Addr())
	lenient := o.Header.Dst.Addr().Is6() && o.Packet.Protocol == interception.ProtocolTCP
	return !there && !o.Listener.Transparent && o.Socket == nil && !lenient
}

// linkOf returns the link that has an address, including a plan's links; for IPv4 lo has all
// addresses of its prefixes.
func linkOf(world trace.World, addr netip.Addr) (interception.Interface, bool) {
	links := slices.Clone(world.Namespaces[0].Links)
	for _, plan := range world.Namespaces[0].Plans {
		for address := range interception.ObjectsOf[interception.Address](plan) {
			links = append(links, trace.Link{Name: address.Device, Addresses: []netip.Prefix{address.Prefix}})
		}
	}
	for _, link := range links {
		for _, address := range link.Addresses {
			if address.Addr() == addr || link.Name == "lo" && addr.Is4() && address.Contains(addr) {
				return link.Name, true
			}
		}
	}
	return "", false
}

// noOwner is the owner of a reset, which no socket sends.
const noOwner = 65534

func arrives(o trace.Outcome) bool { return o.Verdict == trace.Delivered || o.Verdict == trace.Sent }

// answerer returns the origin of the answer to a packet that arrived.
func (p *Pod) answerer(world trace.World, o trace.Outcome) trace.Origin {
	if o.Verdict == trace.Sent {
		return trace.Arrival{Link: o.Link}
	}
	owner := p.owner(uint16(o.Listener.Port))
	if _, there := linkOf(world, o.Header.Dst.Addr()); !there {
		owner.Transparent = true // see silenced
	}
	return owner
}

// owner returns the user and group of the pod's listener on a port.
func (p *Pod) owner(port uint16) trace.Socket {
	if slices.Contains(p.options.ProxyPorts, port) {
		return trace.Socket{
			UID: interception.UID(p.options.ProxyUID), GID: interception.GID(p.options.ProxyGID),
			Mark: interception.Mark(p.options.ProxyMark), Transparent: true,
		}
	}
	return trace.Socket{}
}

// returns reports whether the answer to a packet reaches its sender.
func returns(there, answer trace.Outcome) bool {
	if _, opened := there.Packet.From.(trace.Socket); opened {
		return answer.Verdict == trace.Delivered && answer.Socket != nil
	}
	return answer.Verdict == trace.Sent && answer.Header.Src == there.Packet.Dst && answer.Header.Dst == there.Packet.Src
}

// probeOf returns the probe that sends the packet.
func probeOf(packet trace.Packet) Probe {
	probe := Probe{Src: packet.Src.Addr(), Dst: packet.Dst}
	if packet.Protocol == interception.ProtocolUDP {
		probe.Protocol = UDP
	}
	switch from := packet.From.(type) {
	case trace.Socket:
		probe.UID, probe.GID = uint32(from.UID), uint32(from.GID)
		probe.Mark, probe.Transparent = uint32(from.Mark), from.Transparent
	case trace.Arrival:
		if probe.From = Elsewhere; from.Link != eth0 {
			probe.From, probe.Src = InMachine, netip.Addr{}
		}
	}
	return probe
}
