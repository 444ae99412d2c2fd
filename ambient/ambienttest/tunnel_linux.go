// SPDX-License-Identifier: Apache-2.0

package ambienttest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// maxHead bounds the line that a tunnel begins with, which is the destination. ztunnel has a
// request of HTTP/2 in its place: CONNECT over mTLS, whose authority is the destination
// (build_inbound_request of src/proxy/inbound.rs at 75c2d62).
const maxHead = 64

// enterTunnel relays a connection to the proxy of its destination, at a port of the destination.
func (s *service) enterTunnel(from *net.TCPConn, to netip.AddrPort, port interception.Port, dialer *net.Dialer) error {
	onward, err := s.dial(netip.AddrPortFrom(to.Addr(), uint16(port)), dialer)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(onward, to); err != nil {
		return errors.Join(err, onward.Close())
	}
	s.relay(from, onward)
	return nil
}

// leaveTunnel returns the destination that a connection from another proxy begins with. An address
// that is not the one it came to is another pod's, and refused (validate_destination of
// src/proxy/inbound.rs at 75c2d62; ztunnel makes exceptions for waypoints).
func leaveTunnel(from *net.TCPConn) (netip.AddrPort, error) {
	head, err := readHead(from)
	if err != nil {
		return netip.AddrPort{}, err
	}
	to, err := netip.ParseAddrPort(head)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("a tunnel begins with %q: %w", head, err)
	}
	if own := addressOf(from.LocalAddr()).Addr(); to.Addr() != own {
		return netip.AddrPort{}, fmt.Errorf("the tunnel to %s is for %s", own, to)
	}
	return to, nil
}

// readHead reads a line, and nothing after it.
func readHead(from *net.TCPConn) (string, error) {
	var line strings.Builder
	for b := make([]byte, 1); line.Len() < maxHead; line.WriteByte(b[0]) {
		if _, err := from.Read(b); err != nil {
			return "", err
		}
		if b[0] == '\n' {
			return line.String(), nil
		}
	}
	return "", errors.New("no destination")
}
