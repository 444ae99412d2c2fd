// SPDX-License-Identifier: Apache-2.0

package ambient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/internal/namespace"
)

// transparentProxy takes connections for any destination, and connects there with its client's
// address.
type transparentProxy struct {
	place *nodes.Place
	ctx   context.Context //nolint:containedctx // that of the test, with which connections end
	mutex sync.Mutex
	took  []taken
	fails []error // of its own connections
	busy  sync.WaitGroup
}

// taken is a connection that the proxy has taken: at which port, from whom, and for whom.
type taken struct {
	port     uint16
	from, to netip.AddrPort
}

func (k taken) String() string { return fmt.Sprintf("%s > %s at :%d", k.from, k.to, k.port) }

// startTransparent runs the proxy in a pod to the end of the test.
func startTransparent(t *testing.T, place *nodes.Place) *transparentProxy {
	t.Helper()
	p := &transparentProxy{place: place, ctx: t.Context()}
	t.Cleanup(p.busy.Wait) // after those below, which close the listeners
	config := net.ListenConfig{Control: transparent}
	config.SetMultipathTCP(false)
	for _, port := range []uint16{15001, 15006, 15008} {
		for _, network := range []string{"tcp4", "tcp6"} {
			var listener net.Listener
			err := namespace.Run(place.Netns.File(), func() (err error) {
				listener, err = config.Listen(t.Context(), network, net.JoinHostPort("", strconv.Itoa(int(port))))
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			p.busy.Go(func() { p.serve(listener, port) })
			t.Cleanup(func() { _ = listener.Close() })
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

// takings returns the connections that were taken since the last call.
func (p *transparentProxy) takings() []taken {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	took := p.took
	p.took = nil
	return took
}

func (p *transparentProxy) serve(listener net.Listener, port uint16) {
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
func (p *transparentProxy) relay(from *net.TCPConn, port uint16) {
	defer from.Close()
	defer context.AfterFunc(p.ctx, func() { _ = from.Close() })()
	client, to := addrPort(from.RemoteAddr()), addrPort(from.LocalAddr())
	p.mutex.Lock()
	p.took = append(p.took, taken{port, client, to})
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
	defer onward.Close()
	defer context.AfterFunc(p.ctx, func() { _ = onward.Close() })()
	p.busy.Go(func() {
		_, _ = io.Copy(onward, from) // a failure is the other side's to notice
		if tcp, is := onward.(*net.TCPConn); is {
			_ = tcp.CloseWrite() // likewise
		}
	})
	_, _ = io.Copy(from, onward) // likewise
}

func addrPort(a net.Addr) netip.AddrPort {
	tcp, _ := a.(*net.TCPAddr) // listeners of TCP have no others
	at := tcp.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}
