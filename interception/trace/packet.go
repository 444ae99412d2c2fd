// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

// EphemeralPort is the default source port: the first of the kernel's default range
// (net.ipv4.ip_local_port_range).
const EphemeralPort = 32768

// ICMP is the protocol of echo requests and replies, of ICMP for IPv4 and of ICMPv6 for IPv6
// ([Packet.Protocol]).
const ICMP interception.Protocol = 1

// Packet is a packet of a connection (TCP) or of an exchange (UDP); with zero Flags and Flow, the
// first one. [Outcome.Answer] and [Outcome.Next] return the following ones.
type Packet struct {
	// From is where the packet starts: a [Socket] or an [Arrival].
	From Origin
	// Protocol is TCP, UDP or [ICMP]. Of ICMP there are echo requests, whose Dst has port 0, and
	// replies, whose Src has port 0; the port at the other end is the identifier.
	Protocol interception.Protocol
	// Src is the source. For a socket the address may be left out, and the kernel's choice is used;
	// a given address must be local, as bind(2) requires. Port 0 means [EphemeralPort].
	Src netip.AddrPort
	// Dst is the destination: a unicast address of the same family as Src, and a port. Addresses
	// have no zone, and IPv4 addresses are not IPv4-mapped.
	Dst netip.AddrPort
	// Flags are the TCP flags; 0 means SYN. A packet that does not open a connection belongs to a
	// living one, whose socket exists but is known to its peer only, unless Flow knows more.
	Flags interception.TCPFlag
	// Flow is the flow of an earlier packet ([Outcome.Flow]). Connection tracking looks for this
	// packet in it, by zone, addresses and ports, and in no other flow; without a match the packet
	// belongs to another connection. Nil means that no flow is known.
	Flow *Flow
}

// Origin is where a packet starts. It is sealed: only [Socket], [Arrival] and [Tunnel] implement
// it.
type Origin interface {
	fmt.Stringer
	origin()
}

// Socket is a socket of a process in a namespace.
type Socket struct {
	// Namespace is the namespace's name; "" is the world's first.
	Namespace string
	// UID and GID are the user and group of the process that opened the socket (its fsuid and
	// fsgid).
	UID interception.UID
	GID interception.GID
	// Mark is the mark of the packets that the socket sends (SO_MARK).
	Mark interception.Mark
	// Transparent reports whether the socket has IP_TRANSPARENT (IPV6_TRANSPARENT), which lets it
	// bind to a source that is not local.
	Transparent bool
}

// Arrival is the link by which a packet comes in from the neighbour.
type Arrival struct {
	// Namespace is the namespace's name; "" is the world's first.
	Namespace string
	// Link is the link's name. It is not lo: what comes in by lo left a socket of the same
	// namespace.
	Link interception.Interface
	// Mark is the mark of the packet as it comes in: that of the outer packet if the link is a
	// tunnel, and usually 0 for others.
	Mark interception.Mark
}

// Header is the part of a packet that rules can change.
type Header struct {
	Src, Dst netip.AddrPort
	// Mark is the kernel's own mark of the packet: it stays within the namespace.
	Mark interception.Mark
}

func (Socket) origin()  {}
func (Arrival) origin() {}

// String returns "uid 1000 gid 1000" with the socket's ids, followed by "mark 0x539" and
// "transparent" if they apply.
func (s Socket) String() string {
	text := fmt.Sprintf("uid %d gid %d", s.UID, s.GID)
	text += markText(s.Mark)
	if s.Transparent {
		text += " transparent"
	}
	return text
}

// String returns "in eth0" with the link's name, followed by "mark 0x539" unless the mark is 0.
func (a Arrival) String() string { return "in " + string(a.Link) + markText(a.Mark) }

// String returns source and destination, such as "10.244.0.2:32768 > 192.0.2.1:80", followed by the
// mark unless it is 0.
func (h Header) String() string {
	return fmt.Sprintf("%s > %s", h.Src, h.Dst) + markText(h.Mark)
}

// String returns the packet in one line, such as "tcp uid 1000 gid 1000 10.244.0.2:32768 >
// 192.0.2.1:80", with "flags ack" after the protocol if Flags is not zero.
func (p Packet) String() string {
	text := p.Protocol.String()
	if p.Protocol == ICMP {
		text = "icmp"
	}
	if p.Flags != 0 {
		text += " flags " + p.Flags.String()
	}
	text += fmt.Sprintf(" %v", p.From)
	if p.Src.IsValid() {
		text += " " + p.Src.String()
	}
	return text + " > " + p.Dst.String()
}

// header returns the packet's header at its start.
func (p Packet) header() Header {
	h := Header{Src: p.Src, Dst: p.Dst}
	switch from := p.From.(type) {
	case Socket:
		h.Mark = from.Mark
	case Arrival:
		h.Mark = from.Mark
	case Tunnel:
		h.Mark = from.Mark
	}
	return h
}

// flags returns the packet's TCP flags.
func (p Packet) flags() interception.TCPFlag {
	if p.Protocol == interception.ProtocolTCP && p.Flags == 0 {
		return interception.FlagSYN
	}
	return p.Flags
}

// opens reports whether a listener takes the packet; of ICMP, whether it is a request.
func (p Packet) opens() bool {
	if p.Protocol == ICMP {
		return p.Dst.Port() == 0
	}
	return p.Protocol != interception.ProtocolTCP || interception.Opening().Matches(p.flags())
}
