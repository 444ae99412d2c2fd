// SPDX-License-Identifier: Apache-2.0

package ambienttest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// maxHead bounds the line that a tunnel begins with, which is the destination. ztunnel has a
// request of HTTP/2 in its place: CONNECT over mTLS, whose authority is the destination
// (build_inbound_request of src/proxy/inbound.rs at 75c2d62).
const maxHead = 64

// enterTunnel relays a connection of the pod to the proxy of its destination, which listens at the
// destination's own address (hbone_port of src/proxy/outbound.rs at 3b80cf3, which is inbound_addr
// of src/config.rs at 284160d).
func (p *pod) enterTunnel(from *net.TCPConn, to netip.AddrPort) error {
	onward, err := p.dial(netip.AddrPortFrom(to.Addr(), uint16(p.numbers.TunnelPort)), p.marked())
	if err != nil {
		return err
	}
	defer onward.Close() //nolint:errcheck // a relay cannot report it
	defer context.AfterFunc(p.ctx, func() { _ = onward.Close() })()
	if _, err := fmt.Fprintln(onward, to); err != nil {
		return err
	}
	relay(from, onward)
	return nil
}

// tunnel relays a connection from another proxy to the application that it is for. An address that
// is not the one it came to is another pod's, and refused (validate_destination of
// src/proxy/inbound.rs at 75c2d62; ztunnel makes exceptions for waypoints). So is a port of the
// proxy itself (find_inbound_upstream, there).
func (p *pod) tunnel(from *net.TCPConn) error {
	head, err := readHead(from)
	if err != nil {
		return err
	}
	to, err := netip.ParseAddrPort(head)
	if err != nil {
		return err
	}
	if own := addressOf(from.LocalAddr()).Addr(); to.Addr() != own {
		return fmt.Errorf("the tunnel to %s is for %s", own, to)
	}
	if p.isOwn(to) {
		return fmt.Errorf("%s is a port of the proxy: a relay would come back", to)
	}
	return p.toApplication(from, to)
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
