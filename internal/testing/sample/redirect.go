// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
)

// The users and groups of sockets: an application's, and the usual proxy's.
const (
	Application = 1000
	Proxy       = 1337
)

// Redirect returns a valid redirect: every field takes several values, independently of the others.
func Redirect(c Choices) sidecar.Redirect {
	r := sidecar.Redirect{
		Mode:        Pick(c, sidecar.ModeRedirect, sidecar.ModeTProxy),
		Proxy:       proxy(c),
		Inbound:     sidecar.Inbound{Include: Pick(c, interception.AllPorts(), ports(c)), Exclude: ports(c)},
		Outbound:    outbound(c),
		Interfaces:  interfacePolicy(c),
		Existing:    Pick(c, sidecar.ExistingCapture, sidecar.ExistingSpare),
		DropInvalid: c(3) == 0,
		TProxy: sidecar.TProxy{
			Mark: Pick[interception.Mark](c, 1337, 1, 0x80000000), SelfMark: Pick[interception.Mark](c, 1338, 0x1000),
			Table: Pick[interception.RoutingTable](c, 133, 100), Priority: Pick[uint32](c, 1337, 100),
		},
	}
	if c(2) == 0 {
		r.DNS = sidecar.DNSCapture{Port: Pick[interception.Port](c, 15053, 5353), Servers: Pick(c, interception.PrefixSet{}, resolvers(c))}
	}
	return identified(c, r)
}

// identified sometimes removes the ports that the redirect does not need, and identifies the proxy
// where that is required.
func identified(c Choices, r sidecar.Redirect) sidecar.Redirect {
	captures := !r.Outbound.Include.IsEmpty() || !r.Outbound.IncludePorts.IsEmpty()
	if !captures && c(2) == 0 {
		r.Proxy.OutboundPort = 0
	}
	if r.Inbound.Include.IsEmpty() && c(2) == 0 {
		r.Proxy.InboundPort = 0
	}
	if (captures || r.DNS.Port != 0) && r.Proxy.UIDs.IsEmpty() && r.Proxy.GIDs.IsEmpty() {
		r.Proxy.UIDs = interception.UIDs(1337)
	}
	return r
}

func proxy(c Choices) sidecar.Proxy {
	return sidecar.Proxy{
		UIDs: Pick(c, interception.UIDs(1337), interception.UIDs(1337), interception.UIDs(0), interception.UIDs(1337, 2102),
			interception.UIDs(1337, 1338, 1339), interception.UIDSet{}),
		GIDs: Pick(c, interception.GIDSet{}, interception.GIDs(1337), interception.GIDs(1337, 2102), interception.GIDs(0)),

		OutboundPort:       Pick[interception.Port](c, 15001, 4140),
		InboundPort:        Pick[interception.Port](c, 15006, 4143),
		TunnelPort:         Pick[interception.Port](c, 0, 15008),
		PassthroughSources: Pick(c, interception.PrefixSet{}, prefixes("127.0.0.6/32", "::6/128"), prefixes("127.0.0.6/31", "::6/128", "::9/128")),
	}
}

func outbound(c Choices) sidecar.Outbound {
	return sidecar.Outbound{
		Include:      Pick(c, interception.AllPrefixes(), interception.AllPrefixes(), interception.PrefixSet{}, networks(c)),
		Exclude:      Pick(c, interception.PrefixSet{}, networks(c)),
		IncludePorts: Pick(c, interception.PortSet{}, ports(c)),
		ExcludePorts: Pick(c, interception.PortSet{}, ports(c)),
		Loopback:     Pick(c, prefixes("127.0.0.1/32", "::1/128"), prefixes("127.0.0.0/8", "::1/128"), prefixes("127.0.0.0/8"), prefixes()),
		Groups:       seldom(c, groups),
		CaptureLocal: c(3) == 0,
	}
}

// seldom returns a random value in one of four cases, else the zero value.
func seldom[T any](c Choices, of func(Choices) T) T {
	var zero T
	if c(4) > 0 {
		return zero
	}
	return of(c)
}

func groups(c Choices) sidecar.OwnerGroups {
	some := func() interception.GIDSet {
		return Pick(c, interception.GIDSet{}, interception.GIDs(Application), interception.GIDs(1001, 1002), interception.GIDs(1001, 1003, 1337))
	}
	return sidecar.OwnerGroups{Limited: c(2) == 0, Include: some(), Exclude: some()}
}

// MachineLink is the link to a pod's machine.
const MachineLink interception.Interface = "vm0"

// interfacePolicy returns a policy for links that every pod or no pod has, or for that of a
// machine.
func interfacePolicy(c Choices) sidecar.InterfacePolicy {
	if c(4) > 0 {
		return sidecar.InterfacePolicy{Exclude: seldom(c, interfaces), Reroute: seldom(c, interfaces)}
	}
	machine := interception.Interfaces(MachineLink)
	return Pick(c,
		sidecar.InterfacePolicy{Reroute: machine}, sidecar.InterfacePolicy{Exclude: machine},
		sidecar.InterfacePolicy{Reroute: machine, Exclude: interception.Interfaces("net1")})
}

func interfaces(c Choices) interception.InterfaceSet {
	names := Pick(c, []interception.Interface{"eth0"}, []interception.Interface{"lo", "net1"}, []interception.Interface{"eth*"})
	return interception.Interfaces(names...)
}

// ports returns no, some or hundreds of ports.
func ports(c Choices) interception.PortSet {
	few := Pick(c, interception.Ports(80, 8080), interception.Ports(443), interception.PortRange(8000, 8090))
	switch c(8) {
	case 0, 1, 2:
		return interception.PortSet{}
	case 3:
		return manyPorts(c, few)
	case 4:
		return few.Union(interception.Ports(0, 53, 15001, 65535))
	default:
		return few
	}
}

// manyPorts returns hundreds of ports, single ones and ranges, in addition to the few.
func manyPorts(c Choices, few interception.PortSet) interception.PortSet {
	for range 100 + c(200) {
		first := interception.Port(1 + c(1<<16-10))
		few = few.Union(interception.PortRange(first, first+interception.Port(c(3)*c(3))))
	}
	return few
}
