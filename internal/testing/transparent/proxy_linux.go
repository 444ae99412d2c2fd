// SPDX-License-Identifier: Apache-2.0

package transparent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/internal/namespace"
)

// Proxy takes connections for any destination. Start one with [Start].
type Proxy struct {
	place *nodes.Place
	ctx   context.Context //nolint:containedctx // its connections end with it
	stop  func()
	mutex sync.Mutex
	took  []Taken
	fails []error // of its own connections
	busy  sync.WaitGroup
}

// Taken is a connection that the proxy has taken: at which port, from whom, and for whom.
type Taken struct {
	Port     uint16
	From, To netip.AddrPort
}

// String returns the connection in one line.
func (k Taken) String() string { return fmt.Sprintf("%s > %s at :%d", k.From, k.To, k.Port) }

// Start runs a proxy in a pod to the end of the test, or until Stop. It listens on the ports 15001,
// 15006 and 15008.
func Start(t testing.TB, place *nodes.Place) *Proxy {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := &Proxy{place: place, ctx: ctx}
	var listeners []net.Listener
	p.stop = sync.OnceFunc(func() {
		cancel()
		for _, listener := range listeners {
			_ = listener.Close()
		}
		p.busy.Wait()
	})
	t.Cleanup(p.stop)
	config := net.ListenConfig{Control: transparent}
	config.SetMultipathTCP(false)
	for _, port := range []uint16{15001, 15006, 15008} {
		for _, network := range []string{"tcp4", "tcp6"} {
			var listener net.Listener
			err := namespace.Run(place.Netns.File(), func() (err error) {
				listener, err = config.Listen(ctx, network, net.JoinHostPort("", strconv.Itoa(int(port))))
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			listeners = append(listeners, listener)
			p.busy.Go(func() { p.serve(listener, port) })
		}
	}
	return p
}

// transparent lets a socket have the addresses of others.
func transparent(network, _ string, conn syscall.RawConn) error {
	var refused error
	err := conn.Control(func(fd uintptr) {
		if network == "tcp6" {
			refused = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_TRANSPARENT, 1)
		} else {
			refused = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TRANSPARENT, 1)
		}
	})
	return errors.Join(err, refused)
}

// Stop ends the proxy with its connections.
func (p *Proxy) Stop() { p.stop() }

// Takings returns the connections that were taken since the last call.
func (p *Proxy) Takings() []Taken {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	took := p.took
	p.took = nil
	return took
}

// Failures returns why connections of the proxy have failed.
func (p *Proxy) Failures() []error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return slices.Clone(p.fails)
}

func (p *Proxy) serve(listener net.Listener, port uint16) {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if from, is := conn.(*net.TCPConn); is {
			p.busy.Go(func() { p.relay(from, port) })
		}
	}
}

// relay connects to the destination in the client's name. What comes to the port of tunnels is for
// the application's port.
func (p *Proxy) relay(from *net.TCPConn, port uint16) {
	defer func() { _ = from.Close() }()
	defer context.AfterFunc(p.ctx, func() { _ = from.Close() })()
	client, to := addrPort(from.RemoteAddr()), addrPort(from.LocalAddr())
	p.mutex.Lock()
	p.took = append(p.took, Taken{port, client, to})
	p.mutex.Unlock()
	if to.Port() == port {
		to = netip.AddrPortFrom(to.Addr(), 8080)
	}
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(client.Addr(), 0)), Control: transparent}
	var onward net.Conn
	err := namespace.Run(p.place.Netns.File(), func() (err error) {
		onward, err = dialer.DialContext(p.ctx, "tcp", to.String())
		return err
	})
	if err != nil {
		p.mutex.Lock()
		p.fails = append(p.fails, err)
		p.mutex.Unlock()
		return // the client notices that nothing comes
	}
	defer func() { _ = onward.Close() }()
	defer context.AfterFunc(p.ctx, func() { _ = onward.Close() })()
	var answering sync.WaitGroup
	answering.Go(func() { pass(from, onward) })
	pass(onward, from)
	answering.Wait()
}

// pass hands on what one side says, and that it has said all.
func pass(to, from net.Conn) {
	_, _ = io.Copy(to, from) // a failure is the other side's to notice
	if tcp, is := to.(*net.TCPConn); is {
		_ = tcp.CloseWrite() // likewise
	}
}

func addrPort(a net.Addr) netip.AddrPort {
	tcp, _ := a.(*net.TCPAddr) // listeners of TCP have no others
	at := tcp.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}
