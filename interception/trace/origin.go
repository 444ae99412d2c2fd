// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// start returns the namespace in which the packet starts, or why it cannot start.
func (p Packet) start(networks []*network) (*network, error) {
	n, err := p.enter(networks)
	if err == nil {
		err = p.validate(n)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrPacket, p, err)
	}
	return n, nil
}

// enter resolves the origin's names.
func (p Packet) enter(networks []*network) (*network, error) {
	var name string
	switch origin := p.From.(type) {
	case Socket:
		name = origin.Namespace
	case Arrival:
		name = origin.Namespace
	case Tunnel:
		return nil, errTunnel
	default:
		return nil, errors.New("it starts nowhere: set From to a Socket or an Arrival")
	}
	at := slices.IndexFunc(networks, func(n *network) bool { return name == "" || n.Name == name })
	if at < 0 {
		return nil, fmt.Errorf("the world has no namespace %q", name)
	}
	n := networks[at]
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
func (p Packet) validate(n *network) error {
	if p.Protocol != interception.ProtocolTCP && p.Protocol != interception.ProtocolUDP && p.Protocol != ICMP {
		return fmt.Errorf("protocol %s is not traced: use tcp, udp or icmp", p.Protocol)
	}
	if p.Protocol != interception.ProtocolTCP && p.Flags != 0 {
		return fmt.Errorf("%s has no flags: leave them out", p.Protocol)
	}
	if err := p.validateDst(n); err != nil {
		return err
	}
	return p.validateSrc(n)
}

func (p Packet) validateDst(n *network) error {
	switch addr := p.Dst.Addr(); {
	case p.Protocol == ICMP && p.Dst.Port() != 0 && (p.Src.Port() != 0 || !p.Src.IsValid()):
		return errors.New("an echo request has port 0 in its destination, a reply in its source")
	case p.Protocol != ICMP && p.Dst.Port() == 0:
		return errors.New("the destination needs a port")
	case addr.IsUnspecified():
		return errors.New("the destination is the unspecified address: name the loopback address, which sockets take for it")
	case n.isBroadcast(addr):
		return errors.New("the destination is a broadcast address: no connection can be made to it")
	default:
		return validateAddr("destination", addr)
	}
}

func (p Packet) validateSrc(n *network) error {
	socket, fromSocket := p.From.(Socket)
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
	case fromSocket && !socket.Transparent && !n.isLocal(addr):
		return fmt.Errorf("no socket can be bound to the source: no link of namespace %q has its address, and it isn't Transparent", n.Name)
	default:
		return nil
	}
}

// validateAddr accepts plain unicast addresses only.
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
