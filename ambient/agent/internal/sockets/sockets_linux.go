// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	mdlayher "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/kernel"
)

// The states of TCP sockets, as bits of a mask (include/net/tcp_states.h).
const (
	listen = 1 << 10
	// Live are those of connections: all but TIME_WAIT, CLOSE and LISTEN.
	Live = 1<<1 | 1<<2 | 1<<3 | 1<<4 | 1<<5 | 1<<8 | 1<<9 | 1<<11 | 1<<12
)

// Served returns the families in which each of the TCP ports has a listener at an unspecified
// address in the namespace, IPv4 first. A listener of IPv6 serves both families, unless it has
// IPV6_V6ONLY (ipv6(7)). On other systems than Linux the error is [interception.ErrUnsupported].
func Served(in *interception.Netns, ports ...interception.Port) (families []interception.Family, err error) {
	missing := map[interception.Family]map[interception.Port]bool{interception.IPv4: {}, interception.IPv6: {}}
	for _, of := range missing {
		for _, port := range ports {
			of[port] = true
		}
	}
	err = Each(in, listen, func(s Socket) (enough bool) {
		if at, port := s.Local.Addr(), interception.Port(s.Local.Port()); at.IsUnspecified() {
			delete(missing[interception.FamilyOf(at)], port)
			if !s.V6Only {
				delete(missing[interception.IPv4], port)
			}
		}
		return len(missing[interception.IPv4])+len(missing[interception.IPv6]) == 0
	})
	if err != nil {
		return nil, err
	}
	for _, family := range []interception.Family{interception.IPv4, interception.IPv6} {
		if len(missing[family]) == 0 {
			families = append(families, family)
		}
	}
	return families, nil
}

// Each calls a function with each TCP socket that is in one of the states, first those of
// IPv6, until it has enough.
func Each(in *interception.Netns, states uint32, do func(Socket) (enough bool)) error {
	// The look grows its goroutine's stack. An agent has a goroutine for each pod, which looks again
	// and again: this one's stack is grown instead.
	looked := make(chan error, 1)
	go func() { looked <- each(in, states, do) }()
	if err := <-looked; err != nil {
		return fmt.Errorf("look for the proxy's sockets in %s: %w", in, err)
	}
	return nil
}

func each(in *interception.Netns, states uint32, do func(Socket) (enough bool)) error {
	conn, err := kernel.Of(in.File()).Dial(unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return err
	}
	client := kernel.NewClient(conn)
	defer client.Close() //nolint:errcheck // nothing was written
	for _, family := range []uint8{unix.AF_INET6, unix.AF_INET} {
		sockets, err := dump(client, family, states)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(sockets, do) {
			return nil
		}
	}
	return nil
}

// A request and an answer of sock_diag(7): struct inet_diag_req_v2 and struct inet_diag_msg of
// include/uapi/linux/inet_diag.h.
const (
	requestSize                 = 56
	messageSize                 = 72
	localPort, remotePort       = 4, 6
	localAddress, remoteAddress = 8, 24
	v6OnlyAttribute             = 11 // INET_DIAG_SKV6ONLY
	markAttribute               = 15 // INET_DIAG_MARK
)

// dump returns a family's TCP sockets in the states. Package netlink asks for all states,
// and the kernel would then search through all connections of the node. It reads no marks either.
func dump(client *kernel.Client, family uint8, states uint32) (all []Socket, err error) {
	body := make([]byte, requestSize)
	body[0], body[1] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(body[4:], states)
	answers, err := client.Ask(kernel.Request{Kind: unix.SOCK_DIAG_BY_FAMILY, Flags: unix.NLM_F_DUMP, Body: body})
	if err != nil {
		return nil, err
	}
	for _, answer := range answers {
		if len(answer) < messageSize {
			return nil, fmt.Errorf("the kernel describes a socket in %d bytes, fewer than the %d of struct inet_diag_msg", len(answer), messageSize)
		}
		s := Socket{Local: endOf(answer, localAddress, localPort), Remote: endOf(answer, remoteAddress, remotePort)}
		if err := s.describe(answer[messageSize:]); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// endOf returns one end of an inet_diag_msg.
func endOf(message []byte, address, port int) netip.AddrPort {
	at := netip.AddrFrom16([16]byte(message[address:]))
	if message[0] == unix.AF_INET {
		at = netip.AddrFrom4([4]byte(message[address:]))
	}
	return netip.AddrPortFrom(at, binary.BigEndian.Uint16(message[port:]))
}

// describe takes over what the attributes of a socket say.
func (s *Socket) describe(attributes []byte) error {
	d, err := mdlayher.NewAttributeDecoder(attributes)
	if err != nil {
		return fmt.Errorf("attributes of a socket: %w", err)
	}
	for d.Next() {
		switch d.Type() {
		case markAttribute:
			s.Mark = interception.Mark(d.Uint32())
		case v6OnlyAttribute:
			s.V6Only = d.Uint8() != 0
		}
	}
	if err := d.Err(); err != nil {
		return fmt.Errorf("attributes of a socket: %w", err)
	}
	return nil
}
