// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"net/netip"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// Packet returns a packet that can start in a world of World.
func Packet(c Choices) trace.Packet {
	family := Pick(c, interception.IPv4, interception.IPv6)
	port := Pick[uint16](c, 53, 80, 443, 8080, 15001, 15006, 15008)
	dst := netip.AddrPortFrom(netip.MustParseAddr(Pick(c, destinations(family)...)), port)
	packet := trace.Packet{
		From:     trace.Socket{UID: Pick[interception.UID](c, Application, Proxy), GID: Pick[interception.GID](c, Application, Proxy)},
		Protocol: Pick(c, interception.ProtocolTCP, interception.ProtocolTCP, interception.ProtocolUDP),
		Dst:      dst,
	}
	switch c(4) {
	case 0:
		packet.From = trace.Arrival{Link: "eth0"}
		packet.Src = netip.AddrPortFrom(netip.MustParseAddr(destinations(family)[3]), 40000)
	case 1:
		packet.Src = netip.AddrPortFrom(netip.MustParseAddr(Pick(c, destinations(family)[:3]...)), 0)
	}
	if packet.Protocol == interception.ProtocolTCP && c(6) == 0 {
		packet.Flags = Pick(c, interception.FlagACK, interception.FlagACK|interception.FlagFIN,
			interception.FlagSYN|interception.FlagACK, interception.FlagRST)
	}
	return packet
}

// Marking returns the packet from a socket with a random mark, which may be bound to a source that
// is not local.
func Marking(c Choices, packet trace.Packet) trace.Packet {
	if socket, ok := packet.From.(trace.Socket); ok {
		socket.Mark, socket.Transparent = Pick[interception.Mark](c, 0, 0, 1, 2), c(4) == 0
		if socket.Transparent {
			packet.Src = netip.AddrPortFrom(netip.MustParseAddr(Pick(c, destinations(interception.FamilyOf(packet.Dst.Addr()))...)), 0)
		}
		packet.From = socket
	}
	return packet
}

// World returns a pod with the plans and everything that random packets can meet.
func World(plans ...*interception.Plan) trace.World {
	world := trace.Sidecar(nil, trace.SidecarOptions{
		Loopback: []netip.Prefix{netip.MustParsePrefix("::6/128")},
		Listeners: []trace.Listener{
			{Name: "application", Protocol: interception.ProtocolTCP, Port: 8080},
			{Name: "outbound", Proxy: true, Protocol: interception.ProtocolTCP, Port: 15001},
			{Name: "inbound", Proxy: true, Protocol: interception.ProtocolTCP, Port: 15006, Transparent: true},
			{Name: "resolver", Proxy: true, Protocol: interception.ProtocolTCP, Port: 15053},
			{Name: "resolver", Proxy: true, Protocol: interception.ProtocolUDP, Port: 15053},
		},
	})
	pod := &world.Namespaces[0]
	pod.Plans = plans
	for _, plan := range plans {
		if _, ok := plan.Set("live"); ok {
			members := interception.Prefixes(netip.MustParsePrefix("10.0.0.0/8"))
			pod.LiveSets = append(pod.LiveSets, trace.LiveSet{Owner: plan.Owner, Name: "live", Members: members})
		}
	}
	return world
}
