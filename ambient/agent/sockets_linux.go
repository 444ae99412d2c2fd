// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

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

// proxyListens reports whether each of the proxy's TCP ports has a listener at an unspecified
// address in the namespace. A listener of IPv6 usually serves both families.
func proxyListens(in *interception.Netns, n ambient.Numbers) (bool, error) {
	ports := map[interception.Port]bool{n.OutboundPort: true, n.InboundPort: true, n.TunnelPort: true}
	err := eachSocket(in, listenState, func(port interception.Port, address netip.Addr) (enough bool) {
		if address.IsUnspecified() {
			delete(ports, port)
		}
		return len(ports) == 0
	})
	return err == nil && len(ports) == 0, err
}

// proxyIsConnected reports whether there is a connection in the namespace that was accepted at one
// of the proxy's ports, as each connection through the proxy is.
func proxyIsConnected(in *interception.Netns, n ambient.Numbers) (connected bool, err error) {
	ports := []interception.Port{n.OutboundPort, n.InboundPort, n.TunnelPort}
	err = eachSocket(in, liveStates, func(port interception.Port, _ netip.Addr) (enough bool) {
		connected = connected || slices.Contains(ports, port)
		return connected
	})
	return connected, err
}

// eachSocket calls a function with the local end of each TCP socket that is in one of the states,
// first those of IPv6, until it has enough. Ports tell more than marks do: the proxy's connections
// to other proxies have its mark, and may outlive those that they have carried.
func eachSocket(in *interception.Netns, states uint32, do func(port interception.Port, address netip.Addr) (enough bool)) error {
	err := namespace.Run(in.File(), func() error {
		for _, family := range []uint8{unix.AF_INET6, unix.AF_INET} {
			sockets, err := dumpSockets(family, states)
			if err != nil {
				return err
			}
			for _, socket := range sockets {
				if do(localEnd(socket)) {
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
	requestSize                        = 56
	messageSize                        = 72
	localPort, localAddress, remoteEnd = 4, 8, 24
)

// dumpSockets returns an inet_diag_msg for each of a family's TCP sockets in the states. Package
// netlink asks for all states: the kernel would then search through all connections of the node.
func dumpSockets(family uint8, states uint32) ([][]byte, error) {
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
	}
	return answers, nil
}

// localEnd returns the local port and address of an inet_diag_msg.
func localEnd(message []byte) (interception.Port, netip.Addr) {
	address := netip.AddrFrom16([16]byte(message[localAddress:remoteEnd]))
	if message[0] == unix.AF_INET {
		address = netip.AddrFrom4([4]byte(message[localAddress:]))
	}
	return interception.Port(binary.BigEndian.Uint16(message[localPort:])), address
}
