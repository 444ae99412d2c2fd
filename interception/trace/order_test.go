// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"fmt"

	"github.com/meshcni/meshcni/interception"
)

// decision returns which line of sidecar.Plan's doc comment decides, and the port of the proxy that
// gets the connection, or 0: it implements the order of that comment independently.
func (s situation) decision() (line string, to interception.Port) {
	decide, way := s.outboundDecision, "outbound"
	if s.inbound() {
		decide, way = s.inboundDecision, "inbound"
	}
	n, to := decide()
	if n > inboundLine { // decided where it comes in
		n, way = n-inboundLine, "inbound"
	}
	return fmt.Sprintf("%s %d", way, n), to
}

// inboundLine is added to the numbers of inbound lines that decide about outbound packets.
const inboundLine = 100

// inboundDecision follows the lines about packets that come to the pod.
func (s situation) inboundDecision() (line int, to interception.Port) {
	switch {
	case !s.tcp():
		return 7, 0
	case s.spared():
		return 1, 0
	case s.Interfaces.Reroute.Contains("eth0"):
		if s.Outbound.Include.Contains(s.dst()) {
			return 2, s.Proxy.OutboundPort
		}
		return 2, 0
	case s.Interfaces.Exclude.Contains("eth0"):
		return 3, 0
	default:
		return s.portDecision()
	}
}

// portDecision follows the lines about ports, from the tunnel on.
func (s situation) portDecision() (line int, to interception.Port) {
	switch {
	case s.Proxy.TunnelPort != 0 && s.port() == s.Proxy.TunnelPort:
		return 4, 0
	case s.Inbound.Exclude.Contains(s.port()):
		return 5, 0
	case s.Inbound.Include.Contains(s.port()):
		return 6, s.Proxy.InboundPort
	default:
		return 7, 0
	}
}

// outboundDecision follows the lines about packets that leave the pod, up to the pod's calls to
// itself.
func (s situation) outboundDecision() (line int, to interception.Port) {
	toItself := s.fromProxy() && s.local() && s.tcp() && !s.Outbound.Loopback.Contains(s.dst()) && s.Proxy.InboundPort != 0
	switch {
	case !s.tcp() && s.DNS.Port == 0:
		return 13, 0
	case toItself && s.tproxies() && !s.tests():
		return s.selfCallDecision()
	case s.Interfaces.Exclude.Contains(s.link()):
		return 1, 0
	case s.spared():
		return 2, 0
	case s.excludedPort():
		return 3, 0
	case s.passesThrough():
		return 4, 0
	case toItself && s.port() != s.Proxy.TunnelPort && (s.DNS.Port == 0 || s.port() != 53):
		return 5, s.Proxy.InboundPort
	default:
		return s.captureDecision()
	}
}

// tests reports whether it is a validator's call, about which outbound rules decide even in TPROXY
// mode.
func (s situation) tests() bool {
	family := interception.IPv6
	if s.dst().Is4() {
		family = interception.IPv4
	}
	own, loopback := s.Proxy.PassthroughSources.Of(family), s.Outbound.Loopback.Of(family)
	return own.Contains(s.dst()) && own.Union(loopback).Len() == own.Len()+loopback.Len() && !s.Interfaces.Exclude.Contains("lo") && !s.spared() &&
		!s.excludedPort() && !s.passesThrough() && (s.Proxy.TunnelPort == 0 || s.port() != s.Proxy.TunnelPort) && (s.DNS.Port == 0 || s.port() != 53)
}

// selfCallDecision follows the inbound lines for a call of the pod to itself, which TPROXY mode
// hands over there.
func (s situation) selfCallDecision() (line int, to interception.Port) {
	switch {
	case s.Interfaces.Exclude.Contains("lo"), s.Interfaces.Reroute.Contains("lo"), s.spared(), s.passesThrough():
		return inboundLine + 3, 0
	default:
		n, to := s.portDecision()
		return inboundLine + n, to
	}
}

// captureDecision follows the lines about packets that leave the pod, from the application's calls
// to the pod on.
func (s situation) captureDecision() (line int, to interception.Port) {
	within := s.local() && !s.fromProxy() && !s.Outbound.CaptureLocal
	switch {
	case within && (s.DNS.Port == 0 || s.tcp() && s.port() != 53):
		return 6, 0
	case s.fromProxy():
		return 7, 0
	case s.excludedGroup():
		return 8, 0
	case s.asks():
		return 9, s.DNS.Port
	case s.Outbound.Loopback.Contains(s.dst()), s.Outbound.Exclude.Contains(s.dst()):
		return 10, 0
	case s.tcp() && s.Outbound.IncludePorts.Contains(s.port()):
		return 11, s.Proxy.OutboundPort
	case s.tcp() && s.Outbound.Include.Contains(s.dst()):
		return 12, s.Proxy.OutboundPort
	default:
		return 13, 0
	}
}
