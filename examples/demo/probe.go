// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/interception/trace"
)

// The programs at the two ends of connections.
const (
	application = "application"
	proxy       = "proxy"
	// world stands for everything outside the node.
	world = "world"
)

type probe struct {
	from string
	// what describes what is special about the connection.
	what string
	// source is the address to connect from; the zero Addr lets the kernel choose.
	source      netip.Addr
	destination netip.AddrPort
	// datagram makes the probe a query and its answer over UDP.
	datagram bool
	// connection names a connection that stays open; see [order]. In ambient mode alone.
	connection string
}

// String returns text such as "application → world".
func (p probe) String() string { return p.from + " → " + p.what }

// network returns "tcp4" or the like.
func (p probe) network() string { return networkOf(p.protocol(), p.destination.Addr()) }

func (p probe) protocol() interception.Protocol {
	if p.datagram {
		return interception.ProtocolUDP
	}
	return interception.ProtocolTCP
}

// networkOf returns package net's network for a protocol and a family.
func networkOf(protocol interception.Protocol, address netip.Addr) string {
	if address.Is4() {
		return protocol.String() + "4"
	}
	return protocol.String() + "6"
}

// scene is everything that decides which connections are worth showing.
type scene struct {
	redirect           sidecar.Redirect
	application, proxy identity
	ports              []interception.Port
	validated          bool
	// sides hold the addresses of each family that the pod has.
	sides []side
}

type side struct {
	// world is an address outside the node that no rule mentions.
	world netip.Addr
	// pod holds the pod's addresses of that family on eth0, in order, with prefix lengths.
	pod []netip.Prefix
	// loopback holds those on lo.
	loopback []netip.Prefix
}

// home returns the loopback address itself, which need not be the first on lo.
func (s side) home() netip.Addr {
	for _, prefix := range s.loopback {
		if prefix.Addr().IsLoopback() {
			return prefix.Addr()
		}
	}
	return s.loopback[0].Addr()
}

// httpPort is where the world listens, besides the ports that rules mention; dnsPort is where
// resolvers listen.
const (
	httpPort interception.Port = 80
	dnsPort  interception.Port = 53
)

// probes returns the connections worth showing, family by family.
func (s scene) probes() []probe {
	var probes []probe
	for _, side := range s.sides {
		probes = append(probes, s.outbound(side)...)
		probes = append(probes, s.local(side)...)
		probes = append(probes, s.inbound(side)...)
	}
	return probes
}

// outbound returns connections that leave the pod unless they are captured.
func (s scene) outbound(side side) []probe {
	to := func(from, what string, addr netip.Addr, port interception.Port) probe {
		return probe{from: from, what: what, destination: netip.AddrPortFrom(addr, uint16(port))}
	}
	probes := []probe{
		to(application, "the world", side.world, httpPort),
		to(proxy, "the world", side.world, httpPort),
	}
	if s.redirect.DNS.Port != 0 {
		for _, from := range []string{application, proxy} {
			byUDP := to(from, "a resolver, by UDP", side.world, dnsPort)
			byUDP.datagram = true
			probes = append(probes, byUDP, to(from, "a resolver, by TCP", side.world, dnsPort))
		}
	}
	o := s.redirect.Outbound
	for _, listed := range []struct {
		what     string
		ports    interception.PortSet
		prefixes interception.PrefixSet
	}{{"excluded", o.ExcludePorts, o.Exclude}, {"included", o.IncludePorts, o.Include}} {
		for _, port := range firstOf(listed.ports) {
			probes = append(probes, to(application, fmt.Sprintf("%s port %d", listed.what, port), side.world, port))
		}
		for _, prefix := range listed.prefixes.Of(interception.FamilyOf(side.world)).Prefixes() {
			if addr, ok := side.sample(prefix); ok {
				probes = append(probes, to(application, fmt.Sprintf("%s %s", listed.what, prefix), addr, httpPort))
			}
		}
	}
	return probes
}

// local returns connections within the pod.
func (s scene) local(side side) []probe {
	own, loopback := netip.AddrPortFrom(side.pod[0].Addr(), uint16(s.ports[0])), netip.AddrPortFrom(side.home(), uint16(s.ports[0]))
	probes := []probe{
		{from: application, what: "the pod's own address", destination: own},
		{from: application, what: "loopback", destination: loopback},
		{from: proxy, what: "the pod's own address", destination: own},
		{from: proxy, what: "loopback", destination: loopback},
	}
	for _, prefix := range s.redirect.Proxy.PassthroughSources.Prefixes() {
		if source := prefix.Addr(); side.isLocal(source) {
			probes = append(probes, probe{from: proxy, what: fmt.Sprintf("application, from %s", source), source: source, destination: own})
		}
	}
	if check := netip.AddrFrom4([4]byte{127, 0, 0, 6}); s.validated && side.isLocal(check) {
		probes = append(probes, probe{from: proxy, what: "what istio-validation tries", destination: netip.AddrPortFrom(check, 15002)})
	}
	return probes
}

// inbound returns connections from the world to the pod.
func (s scene) inbound(side side) []probe {
	var probes []probe
	to := func(what string, port interception.Port) {
		p := probe{from: world, what: what, source: side.world, destination: netip.AddrPortFrom(side.pod[0].Addr(), uint16(port))}
		if !slices.ContainsFunc(probes, func(other probe) bool { return other.destination == p.destination }) {
			probes = append(probes, p)
		}
	}
	for _, port := range s.ports {
		to("application", port)
	}
	if !s.redirect.Inbound.Include.IsAll() {
		for _, port := range firstOf(s.redirect.Inbound.Include) {
			to(fmt.Sprintf("included port %d", port), port)
		}
	}
	for _, port := range firstOf(s.redirect.Inbound.Exclude) {
		to(fmt.Sprintf("excluded port %d", port), port)
	}
	if port := s.redirect.Proxy.TunnelPort; port != 0 {
		to(fmt.Sprintf("tunnel port %d", port), port)
	}
	return probes
}

// firstOf returns the first port of each range of a set. A set of all ports returns an empty
// list, since no port would represent it.
func firstOf(ports interception.PortSet) []interception.Port {
	if ports.IsAll() {
		return nil
	}
	var first []interception.Port
	for _, r := range ports.Ranges() {
		first = append(first, max(r.First, 1)) // port 0 cannot be listened on
	}
	return first
}

// sample returns an address of the prefix that represents a destination outside the node. It
// returns false for prefixes that hold the address that is tried anyway, and for those of special
// use.
func (s side) sample(prefix netip.Prefix) (netip.Addr, bool) {
	if prefix.Contains(s.world) {
		return netip.Addr{}, false
	}
	addr := prefix.Addr()
	if !prefix.IsSingleIP() {
		addr = addr.Next()
	}
	thisNetwork, reserved := netip.PrefixFrom(netip.AddrFrom4([4]byte{0}), 8), netip.PrefixFrom(netip.AddrFrom4([4]byte{240}), 4)
	usable := !addr.IsLoopback() && !addr.IsMulticast() && !addr.IsLinkLocalUnicast() && !addr.IsUnspecified() &&
		!thisNetwork.Contains(addr) && !reserved.Contains(addr)
	return addr, usable && !slices.ContainsFunc(s.pod, func(own netip.Prefix) bool { return own.Contains(addr) })
}

// isLocal reports whether the address is a loopback address, or in the IPv4 loopback prefix.
func (s side) isLocal(addr netip.Addr) bool {
	return slices.ContainsFunc(s.loopback, func(p netip.Prefix) bool {
		return p.Addr() == addr || addr.Is4() && p.Contains(addr)
	})
}

// agentPorts returns the ports of the agent beside the proxy: merged metrics, health, and the
// proxy's own metrics (https://istio.io/latest/docs/ops/deployment/application-requirements/).
func agentPorts() []interception.Port { return []interception.Port{15020, 15021, 15090} }

// listeners returns the sockets that the pod's programs need to answer every probe.
func (s scene) listeners() []trace.Listener {
	var listeners []trace.Listener
	taken := map[interception.Port]bool{0: true}
	p, transparent := s.redirect.Proxy, s.redirect.Mode == sidecar.ModeTProxy
	listen := func(program string, ports ...interception.Port) {
		for _, port := range ports {
			if !taken[port] {
				taken[port] = true
				l := listenerOf(program, interception.ProtocolTCP, port)
				l.Transparent = transparent && program == proxy && port == p.InboundPort
				listeners = append(listeners, l)
			}
		}
	}
	listen(proxy, p.OutboundPort, p.InboundPort, p.TunnelPort)
	if port := s.redirect.DNS.Port; port != 0 {
		listen(proxy, port)
		listeners = append(listeners, listenerOf(proxy, interception.ProtocolUDP, port))
	}
	listen(proxy, agentPorts()...)
	listen(application, s.ports...)
	listen(application, firstOf(s.redirect.Inbound.Include)...)
	listen(application, firstOf(s.redirect.Inbound.Exclude)...)
	return listeners
}

// listenerOf returns a program's socket on all addresses of both families.
func listenerOf(program string, protocol interception.Protocol, port interception.Port) trace.Listener {
	return trace.Listener{Name: listenerName(program, uint16(port)), Proxy: program == proxy, Protocol: protocol, Port: port}
}

func (s scene) packet(p probe) trace.Packet {
	packet := trace.Packet{Protocol: p.protocol(), Dst: p.destination}
	if p.source.IsValid() {
		packet.Src = netip.AddrPortFrom(p.source, 0)
	}
	switch p.from {
	case application:
		packet.From = trace.Socket{UID: s.application.uid, GID: s.application.gid}
	case proxy:
		packet.From = trace.Socket{UID: s.proxy.uid, GID: s.proxy.gid}
	default:
		packet.From = trace.Arrival{Link: podInterface}
	}
	return packet
}

// podInterface is the name that runtimes give to a pod's interface.
const podInterface = "eth0"
