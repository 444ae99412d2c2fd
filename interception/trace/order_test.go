// SPDX-License-Identifier: Apache-2.0

package trace_test

import "github.com/meshcni/meshcni/interception"

// decision says to which port of the proxy the connection goes, 0 for none: the order of PlanSidecar's doc comment, written once more.
func (s situation) decision() interception.Port {
	switch {
	case !s.covered():
		return 0
	case s.inbound():
		return s.inboundDecision()
	default:
		return s.outboundDecision()
	}
}

// inboundDecision follows the lines about what comes to the pod.
func (s situation) inboundDecision() interception.Port {
	switch {
	case !s.tcp():
		return 0
	case s.Interfaces.Reroute.Contains("eth0"): // 1
		if s.Outbound.Include.Contains(s.dst()) {
			return s.Proxy.OutboundPort
		}
		return 0
	case s.Interfaces.Exclude.Contains("eth0"), s.spared(): // 2, 3
		return 0
	default:
		return s.portDecision()
	}
}

// portDecision follows the lines about ports, from the tunnel on.
func (s situation) portDecision() interception.Port {
	switch {
	case s.Proxy.TunnelPort != 0 && s.port() == s.Proxy.TunnelPort: // 4
		return 0
	case s.Inbound.Exclude.Contains(s.port()): // 5
		return 0
	case s.Inbound.Include.Contains(s.port()): // 6
		return s.Proxy.InboundPort
	default: // 7
		return 0
	}
}

// outboundDecision follows the lines about what leaves the pod, up to the pod's calls to itself.
func (s situation) outboundDecision() interception.Port {
	toItself := s.fromProxy() && s.local() && s.tcp() && !s.Outbound.Loopback.Contains(s.dst())
	switch {
	case !s.tcp() && s.DNS.Port == 0:
		return 0
	case toItself && s.tproxies():
		if s.Interfaces.Exclude.Contains("lo") || s.Interfaces.Reroute.Contains("lo") || s.spared() || s.passesThrough() {
			return 0
		}
		return s.portDecision()
	case s.Interfaces.Exclude.Contains(s.link()), s.spared(), s.excludedPort(), s.passesThrough(): // 1 to 4
		return 0
	case toItself && s.port() != s.Proxy.TunnelPort && (s.DNS.Port == 0 || s.port() != 53): // 5
		return s.Proxy.InboundPort
	default:
		return s.captureDecision()
	}
}

// captureDecision follows the lines about what leaves the pod, from the application's calls to the pod on.
func (s situation) captureDecision() interception.Port {
	within := s.local() && !s.fromProxy() && !s.Outbound.CaptureLocal
	switch {
	case within && (s.DNS.Port == 0 || s.tcp() && s.port() != 53): // 6
		return 0
	case s.fromProxy(), s.excludedGroup(): // 7, 8
		return 0
	case s.DNS.Port != 0 && s.port() == 53 && (s.DNS.Servers.IsEmpty() || s.DNS.Servers.Contains(s.dst())): // 9
		return s.DNS.Port
	case s.Outbound.Loopback.Contains(s.dst()), s.Outbound.Exclude.Contains(s.dst()): // 10
		return 0
	case s.tcp() && (s.Outbound.IncludePorts.Contains(s.port()) || s.Outbound.Include.Contains(s.dst())): // 11, 12
		return s.Proxy.OutboundPort
	default: // 13
		return 0
	}
}
