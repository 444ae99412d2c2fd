// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

// EphemeralPort is the source port of a packet that names none: the first of the kernel's default range
// (net.ipv4.ip_local_port_range).
const EphemeralPort = 32768

// Packet is the first packet of a connection (TCP) or of an exchange (UDP).
type Packet struct {
	// From is where the packet starts: a [Socket] or an [Arrival].
	From Origin
	// Protocol is TCP or UDP.
	Protocol interception.Protocol
	// Src is the source. A socket's address may be left out, and is then chosen as the kernel chooses it; one that is given must be
	// local, as bind(2) would demand. Port 0 stands for [EphemeralPort].
	Src netip.AddrPort
	// Dst is the destination: a unicast address, of the same family as Src, and a port. Addresses have no zone, and IPv4 ones
	// are not written as IPv6.
	Dst netip.AddrPort
}

// Origin is where a packet starts. It is sealed: [Socket] and [Arrival] are all there are.
type Origin interface {
	fmt.Stringer
	origin()
}

// Socket is a socket of a process in a namespace.
type Socket struct {
	// Namespace is the namespace's name; "" is the world's first.
	Namespace string
	// UID and GID are the user and group of the process that opened the socket (its fsuid and fsgid).
	UID interception.UID
	GID interception.GID
}

// Arrival is a link of a namespace by which the packet comes in from the neighbour.
type Arrival struct {
	// Namespace is the namespace's name; "" is the world's first.
	Namespace string
	// Link is the link's name. It isn't lo: what comes in by lo left a socket of the same namespace.
	Link interception.Interface
}

// Header is the part of a packet that rules can change.
type Header struct {
	Src, Dst netip.AddrPort
}

func (Socket) origin()  {}
func (Arrival) origin() {}

// String is "uid 1000 gid 1000" with the socket's ids.
func (s Socket) String() string { return fmt.Sprintf("uid %d gid %d", s.UID, s.GID) }

// String is "in eth0" with the link's name.
func (a Arrival) String() string { return "in " + string(a.Link) }

// String is source and destination, such as "10.244.0.2:32768 > 192.0.2.1:80".
func (h Header) String() string { return fmt.Sprintf("%s > %s", h.Src, h.Dst) }

// String is the packet in one line, such as "tcp uid 1000 gid 1000 10.244.0.2:32768 > 192.0.2.1:80".
func (p Packet) String() string {
	if !p.Src.IsValid() {
		return fmt.Sprintf("%s %v > %s", p.Protocol, p.From, p.Dst)
	}
	return fmt.Sprintf("%s %v %s", p.Protocol, p.From, Header{p.Src, p.Dst})
}

// start finds the namespace in which the packet starts, and reports why it could not start there.
func (p Packet) start(w World) (*Namespace, error) {
	n, err := p.enter(w)
	if err == nil {
		err = p.validate(n)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrPacket, p, err)
	}
	return n, nil
}

// enter resolves the origin's names.
func (p Packet) enter(w World) (*Namespace, error) {
	var name string
	switch origin := p.From.(type) {
	case Socket:
		name = origin.Namespace
	case Arrival:
		name = origin.Namespace
	default:
		return nil, errors.New("it starts nowhere: set From to a Socket or an Arrival")
	}
	n, ok := w.namespace(name)
	if !ok {
		return nil, fmt.Errorf("the world has no namespace %q", name)
	}
	arrival, ok := p.From.(Arrival)
	if !ok {
		return n, nil
	}
	if _, ok := n.link(arrival.Link); !ok || arrival.Link == loopback {
		return nil, fmt.Errorf("nothing arrives by link %q: name another link of the namespace than lo, or start at a Socket", arrival.Link)
	}
	return n, nil
}

// validate checks the packet's fields against the namespace it starts in.
func (p Packet) validate(n *Namespace) error {
	if p.Protocol != interception.ProtocolTCP && p.Protocol != interception.ProtocolUDP {
		return fmt.Errorf("protocol %s is not traced: use tcp or udp", p.Protocol)
	}
	if err := p.validateDst(n); err != nil {
		return err
	}
	return p.validateSrc(n)
}

func (p Packet) validateDst(n *Namespace) error {
	switch addr := p.Dst.Addr(); {
	case p.Dst.Port() == 0:
		return errors.New("the destination needs a port")
	case addr.IsUnspecified():
		return errors.New("the destination is the unspecified address: name the loopback address, which sockets take for it")
	case n.isBroadcast(addr):
		return errors.New("the destination is a broadcast address: no connection can be made to it")
	default:
		return validateAddr("destination", addr)
	}
}

func (p Packet) validateSrc(n *Namespace) error {
	_, fromSocket := p.From.(Socket)
	addr := p.Src.Addr()
	if fromSocket && !addr.IsValid() {
		return nil // to be chosen
	}
	if err := validateAddr("source", addr); err != nil {
		return err
	}
	switch {
	case addr.Is4() != p.Dst.Addr().Is4():
		return errors.New("source and destination are of different families")
	case fromSocket && !n.isLocal(addr):
		return fmt.Errorf("no socket can be bound to the source: no link of namespace %q has its address", n.Name)
	default:
		return nil
	}
}

// validateAddr refuses what is not a plain unicast address.
func validateAddr(what string, addr netip.Addr) error {
	switch {
	case !addr.IsValid():
		return fmt.Errorf("the %s has no address", what)
	case addr.Is4In6():
		return fmt.Errorf("the %s is an IPv4 address in IPv6 form: write it as IPv4, which is what goes over the wire", what)
	case addr.Zone() != "":
		return fmt.Errorf("the %s has a zone: leave it out, the routes say which link it means", what)
	case addr.IsUnspecified() || addr.IsMulticast():
		return fmt.Errorf("the %s is not a unicast address", what)
	default:
		return nil
	}
}
