// SPDX-License-Identifier: Apache-2.0

package ambienttest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/namespace"
)

// resolver returns the one of a family. ztunnel answers for the services that it knows, and asks
// the resolvers of its own container's resolv.conf about all else (src/dns/server.rs at 3b80cf3).
func (p *pod) resolver(is4 bool) (netip.AddrPort, bool) {
	for _, r := range p.options.Resolvers {
		if r.IsValid() && r.Addr().Is4() == is4 {
			return r, true
		}
	}
	return netip.AddrPort{}, false
}

// resolve relays queries over TCP to the resolver.
func (p *pod) resolve(from *net.TCPConn) error {
	to, found := p.resolver(addressOf(from.LocalAddr()).Addr().Is4())
	if !found {
		return errors.New("no resolver of this family")
	}
	return p.forward(from, to, p.marked())
}

// listenForQueries takes queries over UDP, on the loopback addresses that the pod has. ztunnel has
// a listener for TCP and one for UDP at each (Server::new of src/dns/server.rs at 3b80cf3), with
// its mark, and shared with a successor (tcp_bind and udp_bind of src/inpod/config.rs at ec12059).
// The stand-in's listeners for TCP are at all addresses.
func (p *pod) listenForQueries() error {
	config := net.ListenConfig{Control: p.control(func(fd int) error {
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	})}
	for _, loopback := range []string{"127.0.0.1", "::1"} {
		var socket net.PacketConn
		at := net.JoinHostPort(loopback, strconv.Itoa(int(p.numbers.DNSPort)))
		err := namespace.Run(p.namespace, func() (err error) {
			socket, err = config.ListenPacket(p.ctx, "udp", at)
			return err
		})
		if errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAFNOSUPPORT) {
			continue // the pod has no IPv6
		}
		if err != nil {
			return fmt.Errorf("listen on UDP %s: %w", at, err)
		}
		p.listeners = append(p.listeners, socket)
		p.serving.Go(func() { p.takeQueries(socket, loopback == "127.0.0.1") })
	}
	return nil
}

// maxQuery is the size of a datagram (RFC 6891, section 6.2.5).
const maxQuery = 4096

func (p *pod) takeQueries(socket net.PacketConn, is4 bool) {
	for query := make([]byte, maxQuery); ; {
		n, from, err := socket.ReadFrom(query)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an earlier answer was not taken
		}
		to, found := p.resolver(is4)
		if !found {
			continue
		}
		question := append([]byte(nil), query[:n]...)
		p.serving.Go(func() {
			if answer, err := p.ask(to, question); err == nil {
				_, _ = socket.WriteTo(answer, from) // the pod asks again
			}
		})
	}
}

// ask sends a query by a marked socket of its own, whose port may be that of the pod's. ztunnel's
// come from the pod's namespace, too, with the mark (RuntimeProviderAdaptor of src/dns/forwarder.rs
// at 6a29eb0).
func (p *pod) ask(to netip.AddrPort, query []byte) ([]byte, error) {
	p.relayed.Add(1)
	ctx, cancel := context.WithTimeout(p.ctx, connectWithin)
	defer cancel()
	var conn net.Conn
	err := namespace.Run(p.namespace, func() (err error) {
		conn, err = p.marked().DialContext(ctx, "udp", to.String())
		return err
	})
	if err != nil {
		return nil, err
	}
	defer conn.Close() //nolint:errcheck // nothing is buffered
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := conn.Write(query); err != nil {
		return nil, err
	}
	answer := make([]byte, maxQuery)
	n, err := conn.Read(answer)
	return answer[:n], err
}
