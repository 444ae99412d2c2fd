// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	mdlayher "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/namespace"
)

// The states of TCP sockets, as bits of a mask (include/net/tcp_states.h).
const (
	listenState = 1 << 10
	// liveStates are those of connections: all but TIME_WAIT, CLOSE and LISTEN.
	liveStates = 1<<1 | 1<<2 | 1<<3 | 1<<4 | 1<<5 | 1<<8 | 1<<9 | 1<<11 | 1<<12
)

// socket is a TCP socket as the kernel describes it.
type socket struct {
	local, remote netip.AddrPort
	// mark is 0 for who lacks CAP_NET_ADMIN over the namespace.
	mark interception.Mark
}

// Listens reports whether each of the TCP ports has a listener at an unspecified address in the
// namespace. A listener of IPv6 usually serves both families. On other systems than Linux the error
// is [interception.ErrUnsupported].
func Listens(in *interception.Netns, ports ...interception.Port) (bool, error) {
	missing := map[interception.Port]bool{}
	for _, port := range ports {
		missing[port] = true
	}
	err := eachSocket(in, listenState, func(s socket) (enough bool) {
		if s.local.Addr().IsUnspecified() {
			delete(missing, interception.Port(s.local.Port()))
		}
		return len(missing) == 0
	})
	return err == nil && len(missing) == 0, err
}

// proxyListens reports whether the proxy has its listeners in the namespace.
func proxyListens(in *interception.Netns, n ambient.Numbers) (bool, error) {
	return Listens(in, n.OutboundPort, n.InboundPort, n.TunnelPort)
}

// proxyIsConnected reports whether the proxy carries a connection in the namespace.
func proxyIsConnected(in *interception.Netns, n ambient.Numbers) (connected bool, err error) {
	err = eachSocket(in, liveStates, func(s socket) (enough bool) {
		connected = connected || s.carries(n)
		return connected
	})
	return connected, err
}

// carries reports whether the socket is one of a connection that the proxy carries. Most of these
// were accepted at one of the proxy's ports. What TPROXY has delivered has the local address that
// the client asked for, and is known by the mark of the listener, which it inherits. So is the
// proxy's connection to the application. The proxy's connections to other proxies and to resolvers
// have its mark, too, and may outlive those that they have carried: they do not count.
func (s socket) carries(n ambient.Numbers) bool {
	accepting := []interception.Port{n.OutboundPort, n.InboundPort, n.TunnelPort}
	if slices.Contains(accepting, interception.Port(s.local.Port())) {
		return true
	}
	outlives := []interception.Port{n.TunnelPort, resolverPort}
	return n.ProxyMark.Matches(s.mark) && !slices.Contains(outlives, interception.Port(s.remote.Port()))
}

// resolverPort is the port of resolvers (RFC 1035, section 4.2).
const resolverPort interception.Port = 53

// eachSocket calls a function with each TCP socket that is in one of the states, first those of
// IPv6, until it has enough.
func eachSocket(in *interception.Netns, states uint32, do func(socket) (enough bool)) error {
	err := namespace.Run(in.File(), func() error {
		for _, family := range []uint8{unix.AF_INET6, unix.AF_INET} {
			sockets, err := dumpSockets(family, states)
			if err != nil {
				return err
			}
			for _, one := range sockets {
				if do(one) {
					return nil
				}
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for the proxy's sockets in %s: %w", in, err)
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
	markAttribute               = 15 // INET_DIAG_MARK
)

// dumpSockets returns a family's TCP sockets in the states. Package netlink asks for all states,
// and the kernel would then search through all connections of the node. It reads no marks either.
func dumpSockets(family uint8, states uint32) (all []socket, err error) {
	request := nl.NewNetlinkRequest(unix.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
	body := make([]byte, requestSize)
	body[0], body[1] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(body[4:], states)
	request.AddRawData(body)
	answers, err := request.Execute(unix.NETLINK_SOCK_DIAG, 0)
	if err != nil {
		return nil, err
	}
	for _, answer := range answers {
		if len(answer) < messageSize {
			return nil, fmt.Errorf("the kernel describes a socket in %d bytes, fewer than the %d of struct inet_diag_msg", len(answer), messageSize)
		}
		mark, err := markOf(answer[messageSize:])
		if err != nil {
			return nil, err
		}
		all = append(all, socket{endOf(answer, localAddress, localPort), endOf(answer, remoteAddress, remotePort), interception.Mark(mark)})
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

// markOf returns the mark among the attributes of a socket, or 0.
func markOf(attributes []byte) (mark uint32, err error) {
	d, err := mdlayher.NewAttributeDecoder(attributes)
	if err != nil {
		return 0, fmt.Errorf("attributes of a socket: %w", err)
	}
	for d.Next() {
		if d.Type() == markAttribute {
			mark = d.Uint32()
		}
	}
	if err := d.Err(); err != nil {
		return 0, fmt.Errorf("attributes of a socket: %w", err)
	}
	return mark, nil
}
