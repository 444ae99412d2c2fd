// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/interception/trace"
)

// Pod is where packets start or end.
type Pod struct {
	Redirect sidecar.Redirect
	// Addresses are those of eth0, of both families; Loopback are those of lo in addition to
	// 127.0.0.0/8 and ::1.
	Addresses, Loopback []netip.Addr
	// Machine are the addresses of a machine at [MachineLink], with their prefixes; empty without a
	// machine.
	Machine []netip.Prefix
}

// LastPort is the largest destination port of a packet. Larger ports are for sources.
const LastPort = 19999

// Packet returns the first packet of a connection or exchange of the pod: one that arrives by eth0
// for an address of the pod, one that a socket sends to any address, or one from the machine.
func (p Pod) Packet(c Choices) trace.Packet {
	family := Pick(c, interception.IPv4, interception.IPv6)
	packet := trace.Packet{Protocol: interception.ProtocolTCP}
	if c(4) == 0 {
		packet.Protocol = interception.ProtocolUDP
	}
	port := p.port(c)
	if len(p.Machine) > 0 && c(4) == 0 {
		packet.From = trace.Arrival{Link: MachineLink}
		packet.Src = netip.AddrPortFrom(p.machine(family), 40000)
		packet.Dst = netip.AddrPortFrom(Pick(c, p.outside(c, family), p.outside(c, family), p.own(c, family)), port)
		return packet
	}
	switch c(8) {
	case 7:
		if p.Redirect.DNS.Port != 0 {
			packet.From = Pick(c, p.socket(c), trace.Socket{UID: Application, GID: Application})
			packet.Protocol = Pick(c, interception.ProtocolTCP, interception.ProtocolUDP, interception.ProtocolUDP)
			packet.Dst = netip.AddrPortFrom(p.resolver(c, family), 53)
			break
		}
		fallthrough
	case 0, 1, 2:
		packet.From = trace.Arrival{Link: "eth0"}
		packet.Src = netip.AddrPortFrom(p.outside(c, family), 40000)
		packet.Dst = netip.AddrPortFrom(p.own(c, family), port)
	case 3:
		packet.From, packet.Src = p.inClientsName(c, family)
		packet.Protocol, packet.Dst = interception.ProtocolTCP, netip.AddrPortFrom(p.own(c, family), port)
	default:
		packet.From = p.socket(c)
		packet.Dst = netip.AddrPortFrom(p.destination(c, family), port)
		if local := p.local(family); c(3) == 0 && p.isLocal(packet.Dst.Addr()) {
			packet.Src = netip.AddrPortFrom(Pick(c, local...), 0)
		}
	}
	return packet
}

// machine returns the machine's address of a family.
func (p Pod) machine(family interception.Family) netip.Addr {
	at := slices.IndexFunc(p.Machine, func(m netip.Prefix) bool { return family.Covers(m.Addr()) })
	return p.Machine[at].Addr()
}

// inClientsName returns a socket of the proxy that connects to the application with its client's
// address.
func (p Pod) inClientsName(c Choices, family interception.Family) (trace.Socket, netip.AddrPort) {
	socket := p.socket(c)
	socket.UID, socket.GID = p.Owner()
	socket.Mark, socket.Transparent = p.Redirect.TProxy.Mark, true
	return socket, netip.AddrPortFrom(p.outside(c, family), 0)
}

// Owner returns a user and a group of the proxy.
func (p Pod) Owner() (interception.UID, interception.GID) {
	uid, gid := interception.UID(1337), interception.GID(Application)
	if r := p.Redirect.Proxy.UIDs.Ranges(); len(r) > 0 {
		uid = r[0].First
	}
	if r := p.Redirect.Proxy.GIDs.Ranges(); len(r) > 0 {
		gid = r[0].First
	}
	return uid, gid
}

// socket returns a socket of the application, of the proxy, or with ids of both.
func (p Pod) socket(c Choices) trace.Socket {
	uid, gid := p.Owner()
	return trace.Socket{
		UID: Pick(c, Application, uid, uid, uid+1, 0),
		GID: Pick(c, Application, gid, gid, gid+1, 1001, 1002),
	}
}

// port returns a port that many rules name, one of the redirect's, or one at an end of its sets or
// just beyond.
func (p Pod) port(c Choices) uint16 {
	r := p.Redirect
	port := Pick(c, 80, 8080, 443, 53, 53, 15001, r.Proxy.OutboundPort, r.Proxy.InboundPort, r.Proxy.TunnelPort, r.DNS.Port)
	sets := []interception.PortSet{r.Inbound.Include, r.Inbound.Exclude, r.Outbound.IncludePorts, r.Outbound.ExcludePorts}
	if ranges := Pick(c, sets...).Ranges(); len(ranges) > 0 && c(2) == 0 {
		one := Pick(c, ranges...)
		port = Pick(c, one.First, one.Last, one.First-1, one.Last+1)
	}
	if port == 0 || port > LastPort {
		return 8080
	}
	return uint16(port)
}

// own returns an address of eth0.
func (p Pod) own(c Choices, family interception.Family) netip.Addr {
	return Pick(c, slices.DeleteFunc(slices.Clone(p.Addresses), func(a netip.Addr) bool { return !family.Covers(a) })...)
}

// destination returns an address of the pod, a resolver, an address at an edge of the redirect's
// prefixes, or any outside.
func (p Pod) destination(c Choices, family interception.Family) netip.Addr {
	switch c(6) {
	case 0, 1:
		return Pick(c, p.local(family)...)
	case 2:
		if resolver := edgeOf(c, p.Redirect.DNS.Servers, family); p.reachable(resolver) {
			return resolver
		}
	case 3:
		return p.outside(c, family)
	}
	r := p.Redirect.Outbound
	if near := edgeOf(c, Pick(c, r.Include, r.Exclude, r.Exclude, r.Loopback), family); p.reachable(near) {
		return near
	}
	return p.outside(c, family)
}

// resolver returns a resolver whose queries are captured, or another address.
func (p Pod) resolver(c Choices, family interception.Family) netip.Addr {
	if known := p.Redirect.DNS.Servers.Of(family).Prefixes(); len(known) > 0 && c(4) > 0 {
		return Pick(c, known...).Addr()
	}
	return p.destination(c, family)
}

// local returns addresses of the pod of a family that are worth a try.
func (p Pod) local(family interception.Family) []netip.Addr {
	all := slices.Concat(p.Addresses, p.Loopback, []netip.Addr{
		netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.6"), netip.IPv6Loopback(),
	})
	return slices.DeleteFunc(all, func(a netip.Addr) bool { return !family.Covers(a) })
}

func (p Pod) isLocal(a netip.Addr) bool {
	return a.Is4() && a.IsLoopback() || a == netip.IPv6Loopback() || slices.Contains(p.Addresses, a) || slices.Contains(p.Loopback, a)
}

// outside returns an address that is not the pod's, at an edge of what is captured if possible.
func (p Pod) outside(c Choices, family interception.Family) netip.Addr {
	if near := edgeOf(c, p.Redirect.Outbound.Include, family); c(3) == 0 && p.reachable(near) && !p.isLocal(near) {
		return near
	}
	if family == interception.IPv4 {
		return netip.MustParseAddr(Pick(c, "10.244.0.9", "198.51.100.7", "203.0.113.9", "172.16.5.5"))
	}
	return netip.MustParseAddr(Pick(c, "fd00:10:244::9", "2001:db8:7::7", "2600:1f00::9"))
}

// reachable reports whether a connection to the address can be tried: it is the pod's, or a usual
// unicast address elsewhere.
func (p Pod) reachable(a netip.Addr) bool {
	switch {
	case !a.IsValid() || a.Is4In6() || a.IsMulticast() || a.IsLinkLocalUnicast():
		return false
	// Broadcast addresses.
	case a == netip.MustParseAddr("127.0.0.0") || a == netip.MustParseAddr("127.255.255.255"):
		return false
	case p.isLocal(a):
		return true
	// No host has these addresses.
	case slices.ContainsFunc(p.Machine, func(m netip.Prefix) bool { return m.Contains(a) }):
		return false
	default:
		usual := prefixes("0.0.0.0/0", "2000::/3", "4000::/2", "8000::/1")
		return usual.Contains(a) && !prefixes("0.0.0.0/8", "240.0.0.0/4", "fe00::/7").Contains(a)
	}
}
