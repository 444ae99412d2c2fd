// SPDX-License-Identifier: Apache-2.0

package ambienttest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/namespace"
)

// service listens in one network namespace, and relays what it takes from there.
type service struct {
	socketOptions
	namespace *os.File // nil is the process's own; the caller closes it
	resolvers []netip.AddrPort
	relayed   *atomic.Int64
	ctx       context.Context //nolint:containedctx // it ends with the service, not with a call
	cancel    context.CancelFunc
	listeners []io.Closer
	serving   sync.WaitGroup
}

// socketOptions are what a proxy's sockets have in a namespace.
type socketOptions struct {
	mark        interception.Mark // of all sockets; none if 0
	shared      bool              // listeners share their ports with those of a successor
	transparent bool              // listeners take connections for any address
}

func newService(in *os.File, o socketOptions, resolvers []netip.AddrPort, relayed *atomic.Int64) *service {
	s := &service{socketOptions: o, namespace: in, resolvers: resolvers, relayed: relayed}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// enter runs do in the namespace.
func (s *service) enter(do func() error) error {
	if s.namespace == nil {
		return do()
	}
	return namespace.Run(s.namespace, do)
}

// open opens a listener of each family at each port. The caller closes the service, also after an
// error.
func (s *service) open(ports map[interception.Port]func(*net.TCPConn) error) error {
	for port, serve := range ports {
		for _, family := range []string{"tcp4", "tcp6"} { // a dual-stack socket has no original IPv4 destination
			listener, err := s.listen(family, port)
			if errors.Is(err, unix.EAFNOSUPPORT) {
				continue // the kernel has no IPv6
			}
			if err != nil {
				return fmt.Errorf("listen on %s port %d: %w", family, port, err)
			}
			s.listeners = append(s.listeners, listener)
			s.serving.Go(func() { s.accept(listener, serve) })
		}
	}
	return nil
}

// closeListeners ends the listeners, and leaves connections.
func (s *service) closeListeners() {
	for _, listener := range s.listeners {
		_ = listener.Close() // nothing was written
	}
}

// drain waits until the connections have ended, or the context has.
func (s *service) drain(ctx context.Context) {
	defer context.AfterFunc(ctx, s.cancel)()
	s.serving.Wait()
}

// close ends all listeners and connections.
func (s *service) close() {
	s.cancel()
	s.closeListeners()
	s.serving.Wait()
}

func (s *service) listen(family string, port interception.Port) (listener *net.TCPListener, err error) {
	config := net.ListenConfig{Control: s.control(func(fd int) error {
		err := s.share(fd)
		if s.transparent {
			err = errors.Join(err, foreign(fd, family == "tcp4"))
		}
		return err
	})}
	config.SetMultipathTCP(false) // rules are about TCP
	err = s.enter(func() error {
		opened, err := config.Listen(s.ctx, family, ":"+strconv.Itoa(int(port)))
		if err == nil {
			listener, _ = opened.(*net.TCPListener) // a TCP listener is one
		}
		return err
	})
	return listener, err
}

// control marks a socket, if the proxy has a mark, and sets what else it needs before it is bound.
func (s *service) control(further func(fd int) error) func(network, address string, raw syscall.RawConn) error {
	return func(_, _ string, raw syscall.RawConn) error {
		var refused error
		err := raw.Control(func(fd uintptr) {
			if s.mark != 0 {
				refused = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(s.mark))
			}
			refused = errors.Join(refused, further(int(fd)))
		})
		return errors.Join(err, refused)
	}
}

// share lets a socket have the port of another one that shares it, too.
func (s *service) share(fd int) error {
	if !s.shared {
		return nil
	}
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
}

func (s *service) accept(listener *net.TCPListener, serve func(*net.TCPConn) error) {
	for {
		accepted, err := listener.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // the client has closed that connection
		}
		s.serving.Go(func() {
			defer accepted.Close() //nolint:errcheck // a relay cannot report it
			defer context.AfterFunc(s.ctx, func() { _ = accepted.Close() })()
			if err := serve(accepted); err != nil {
				_ = accepted.SetLinger(0) // the client gets a reset
			}
		})
	}
}

// plain returns a dialer whose sockets have the proxy's mark and an address of the namespace.
func (s *service) plain() *net.Dialer {
	return &net.Dialer{Control: s.control(func(int) error { return nil })}
}

// asClient returns a dialer whose sockets have the address of a connection's client, too, unless
// that is also the destination's: then the two ends of the new connection could be the same.
func (s *service) asClient(from *net.TCPConn, to netip.AddrPort) *net.Dialer {
	dialer := s.plain()
	if client := addressOf(from.RemoteAddr()).Addr(); client != to.Addr() {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(client, 0))
		dialer.Control = s.control(func(fd int) error { return errors.Join(foreign(fd, client.Is4()), s.choosePort(fd)) })
	}
	return dialer
}

// choosePort has the kernel choose the port of a node's proxy when it connects
// (IP_BIND_ADDRESS_NO_PORT, ip(7)), as other proxies of this kind do. The kernel then chooses among
// the same half of the ports as for clients. A proxy in the server's namespace binds its sockets
// before it connects, so the kernel gives it a port of the other half. If both proxies had the same
// port, the second could not connect, because the kernel would take its connection for the first
// one.
func (s *service) choosePort(fd int) error {
	if !s.transparent {
		return nil
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != nil { // IPv6, too
		return fmt.Errorf("have a socket choose its port when it connects: %w", err)
	}
	return nil
}

// connectWithin limits an attempt to connect.
const connectWithin = 10 * time.Second

func (s *service) forward(from *net.TCPConn, to netip.AddrPort, dialer *net.Dialer) error {
	onward, err := s.dial(to, dialer)
	if err != nil {
		return err
	}
	s.relay(from, onward)
	return nil
}

// dial connects from the namespace.
func (s *service) dial(to netip.AddrPort, dialer *net.Dialer) (*net.TCPConn, error) {
	s.relayed.Add(1)
	ctx, cancel := context.WithTimeout(s.ctx, connectWithin)
	defer cancel()
	var conn net.Conn
	err := s.enter(func() (err error) {
		conn, err = dialer.DialContext(ctx, "tcp", to.String())
		return err
	})
	if err != nil {
		return nil, err
	}
	onward, _ := conn.(*net.TCPConn) // a TCP connection is one
	return onward, nil
}

// relay copies in both directions until both have ended, and closes the connection onward.
func (s *service) relay(from, onward *net.TCPConn) {
	defer onward.Close() //nolint:errcheck // a relay cannot report it
	defer context.AfterFunc(s.ctx, func() { _ = onward.Close() })()
	var both sync.WaitGroup
	one := func(from, to *net.TCPConn) {
		_, _ = io.Copy(to, from) // the other side sees a broken connection as its end
		_ = to.CloseWrite()      // likewise
	}
	both.Go(func() { one(from, onward) })
	both.Go(func() { one(onward, from) })
	both.Wait()
}

// foreign lets a socket have an address that is not the namespace's (ip(7), ipv6(7)).
func foreign(fd int, is4 bool) error {
	level, transparent, free := unix.IPPROTO_IPV6, unix.IPV6_TRANSPARENT, unix.IPV6_FREEBIND
	if is4 {
		level, transparent, free = unix.IPPROTO_IP, unix.IP_TRANSPARENT, unix.IP_FREEBIND
	}
	if err := errors.Join(unix.SetsockoptInt(fd, level, transparent, 1), unix.SetsockoptInt(fd, level, free, 1)); err != nil {
		return fmt.Errorf("give a socket addresses of others: %w (it takes CAP_NET_ADMIN)", err)
	}
	return nil
}

// addresses returns those of all interfaces of the namespace, without zones.
func (s *service) addresses() (all []netip.Addr, err error) {
	if s.namespace != nil {
		return namespace.Addresses(s.namespace)
	}
	return namespace.OwnAddresses()
}

func addressOf(a net.Addr) netip.AddrPort {
	tcp, _ := a.(*net.TCPAddr) // a TCP connection has one
	address := tcp.AddrPort()
	return netip.AddrPortFrom(address.Addr().Unmap(), address.Port())
}
