// SPDX-License-Identifier: Apache-2.0

package ambienttest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
)

// resolver returns the one of a family. ztunnel answers for the services that it knows, and asks
// the resolvers of its own container's resolv.conf about all else (src/dns/server.rs at 3b80cf3).
func (s *service) resolver(is4 bool) (netip.AddrPort, bool) {
	for _, r := range s.resolvers {
		if r.IsValid() && r.Addr().Is4() == is4 {
			return r, true
		}
	}
	return netip.AddrPort{}, false
}

// resolve relays queries over TCP to the resolver.
func (s *service) resolve(from *net.TCPConn) error {
	to, found := s.resolver(addressOf(from.LocalAddr()).Addr().Is4())
	if !found {
		return errors.New("no resolver of this family")
	}
	return s.forward(from, to, s.plain())
}

// listenForQueries takes queries over UDP, at those addresses that the namespace has. ztunnel has a
// listener for TCP and one for UDP at each loopback address of a pod (Server::new of
// src/dns/server.rs at 3b80cf3), with its mark, and shared with a successor (tcp_bind and udp_bind
// of src/inpod/config.rs at ec12059). The stand-in's listeners for TCP are at all addresses.
func (s *service) listenForQueries(port interception.Port, addresses ...netip.Addr) error {
	config := net.ListenConfig{Control: s.control(s.share)}
	for _, address := range addresses {
		var socket net.PacketConn
		at := netip.AddrPortFrom(address, uint16(port)).String()
		err := s.enter(func() (err error) {
			socket, err = config.ListenPacket(s.ctx, "udp", at)
			return err
		})
		if errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAFNOSUPPORT) {
			continue // the pod has no IPv6
		}
		if err != nil {
			return fmt.Errorf("listen on UDP %s: %w", at, err)
		}
		s.listeners = append(s.listeners, socket)
		s.serving.Go(func() { s.takeQueries(socket, address.Is4()) })
	}
	return nil
}

// maxQuery is the size of a datagram (RFC 6891, section 6.2.5).
const maxQuery = 4096

func (s *service) takeQueries(socket net.PacketConn, is4 bool) {
	for query := make([]byte, maxQuery); ; {
		n, from, err := socket.ReadFrom(query)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an earlier answer was not taken
		}
		to, found := s.resolver(is4)
		if !found {
			continue
		}
		question := append([]byte(nil), query[:n]...)
		s.serving.Go(func() {
			if answer, err := s.ask(to, question); err == nil {
				_, _ = socket.WriteTo(answer, from) // the pod asks again
			}
		})
	}
}

// ask sends a query by a marked socket of its own, whose port may be that of the pod's. ztunnel's
// come from the pod's namespace, too, with the mark (RuntimeProviderAdaptor of src/dns/forwarder.rs
// at 6a29eb0).
func (s *service) ask(to netip.AddrPort, query []byte) ([]byte, error) {
	s.relayed.Add(1)
	ctx, cancel := context.WithTimeout(s.ctx, connectWithin)
	defer cancel()
	var conn net.Conn
	err := s.enter(func() (err error) {
		conn, err = s.plain().DialContext(ctx, "udp", to.String())
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
