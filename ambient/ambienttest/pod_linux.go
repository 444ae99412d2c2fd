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

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/namespace"
	"github.com/meshcni/meshcni/internal/originaldst"
)

// pod is what the proxy does in one pod's namespace.
type pod struct {
	options   ProxyOptions
	numbers   ambient.Numbers // those of the options
	namespace *os.File
	relayed   *atomic.Int64
	ctx       context.Context //nolint:containedctx // it ends with the pod, not with a call
	cancel    context.CancelFunc
	listeners []io.Closer
	serving   sync.WaitGroup
}

// open opens the listeners. It takes over the namespace, and closes it on an error.
func open(in *os.File, o ProxyOptions, relayed *atomic.Int64) (*pod, error) {
	n := o.Numbers
	p := &pod{options: o, numbers: n, namespace: in, relayed: relayed}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	services := map[interception.Port]func(*net.TCPConn) error{n.OutboundPort: p.outbound, n.InboundPort: p.inbound, n.TunnelPort: p.tunnel}
	if len(o.Resolvers) > 0 {
		services[n.DNSPort] = p.resolve
	}
	for port, serve := range services {
		for _, family := range []string{"tcp4", "tcp6"} { // a dual-stack socket has no original IPv4 destination
			listener, err := p.listen(family, port)
			if errors.Is(err, unix.EAFNOSUPPORT) {
				continue // the kernel has no IPv6
			}
			if err != nil {
				p.close()
				return nil, fmt.Errorf("listen on %s port %d: %w", family, port, err)
			}
			p.listeners = append(p.listeners, listener)
			p.serving.Go(func() { p.accept(listener, serve) })
		}
	}
	if len(o.Resolvers) > 0 {
		if err := p.listenForQueries(); err != nil {
			p.close()
			return nil, err
		}
	}
	return p, nil
}

// closeListeners ends the listeners, and leaves connections.
func (p *pod) closeListeners() {
	for _, listener := range p.listeners {
		_ = listener.Close() // nothing was written
	}
}

// drain waits until the connections have ended, or the context has.
func (p *pod) drain(ctx context.Context) {
	defer context.AfterFunc(ctx, p.cancel)()
	p.serving.Wait()
}

// close ends all listeners and connections.
func (p *pod) close() {
	p.cancel()
	p.closeListeners()
	p.serving.Wait()
	_ = p.namespace.Close() // likewise
}

// isIn reports whether the pod is in a namespace.
func (p *pod) isIn(other *os.File) bool {
	own, err := p.namespace.Stat()
	theirs, err2 := other.Stat()
	return err == nil && err2 == nil && os.SameFile(own, theirs)
}

func (p *pod) listen(family string, port interception.Port) (listener *net.TCPListener, err error) {
	config := net.ListenConfig{Control: p.control(func(fd int) error {
		err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		if p.options.Transparent {
			err = errors.Join(err, foreign(fd, family == "tcp4"))
		}
		return err
	})}
	err = namespace.Run(p.namespace, func() error {
		opened, err := config.Listen(p.ctx, family, ":"+strconv.Itoa(int(port)))
		if err == nil {
			listener, _ = opened.(*net.TCPListener) // a TCP listener is one
		}
		return err
	})
	return listener, err
}

// control marks a socket as the proxy's, and sets what else it needs before it is bound.
func (p *pod) control(further func(fd int) error) func(network, address string, raw syscall.RawConn) error {
	return func(_, _ string, raw syscall.RawConn) error {
		var refused error
		err := raw.Control(func(fd uintptr) {
			refused = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(p.numbers.ProxyMark.Value)), further(int(fd)))
		})
		return errors.Join(err, refused)
	}
}

func (p *pod) accept(listener *net.TCPListener, serve func(*net.TCPConn) error) {
	for {
		accepted, err := listener.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // the client has closed that connection
		}
		p.serving.Go(func() {
			defer accepted.Close() //nolint:errcheck // a relay cannot report it
			defer context.AfterFunc(p.ctx, func() { _ = accepted.Close() })()
			if err := serve(accepted); err != nil {
				_ = accepted.SetLinger(0) // the client gets a reset
			}
		})
	}
}

// outbound relays a connection of the pod to where it was going.
func (p *pod) outbound(from *net.TCPConn) error {
	to, err := p.destination(from)
	if err != nil {
		return err
	}
	if to.Addr().IsLoopback() {
		return fmt.Errorf("%s is loopback: a relay would come back", to)
	}
	if p.options.Tunnels != nil && p.options.Tunnels(to.Addr()) {
		return p.enterTunnel(from, to)
	}
	return p.forward(from, to, p.marked())
}

// marked returns a dialer whose sockets have the proxy's mark.
func (p *pod) marked() *net.Dialer {
	return &net.Dialer{Control: p.control(func(int) error { return nil })}
}

// errStrict means that a connection came without a tunnel.
var errStrict = errors.New("connections without a tunnel are refused")

// inbound relays a connection to the pod, with the client's address.
func (p *pod) inbound(from *net.TCPConn) error {
	if p.options.Strict {
		return errStrict
	}
	to, err := p.destination(from)
	if err != nil {
		return err
	}
	return p.toApplication(from, to)
}

// toApplication relays a connection to the pod's application, which sees the client's address.
func (p *pod) toApplication(from *net.TCPConn, to netip.AddrPort) error {
	dialer := p.marked()
	if client := addressOf(from.RemoteAddr()).Addr(); client != to.Addr() { // else the two ends could be the same
		dialer.LocalAddr = &net.TCPAddr{IP: client.AsSlice()}
		dialer.Control = p.control(func(fd int) error { return foreign(fd, client.Is4()) })
	}
	return p.forward(from, to, dialer)
}

// destination returns where a connection was going before the redirect.
func (p *pod) destination(from *net.TCPConn) (netip.AddrPort, error) {
	to, err := originaldst.Of(from)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if !to.IsValid() { // TPROXY translates nothing
		to = addressOf(from.LocalAddr())
	}
	if p.isOwn(to) {
		return netip.AddrPort{}, fmt.Errorf("%s is a port of the proxy: a relay would come back", to)
	}
	return to, nil
}

// isOwn reports whether a destination has a port of the proxy's listeners for connections.
func (p *pod) isOwn(to netip.AddrPort) bool {
	switch interception.Port(to.Port()) {
	case p.numbers.OutboundPort, p.numbers.InboundPort, p.numbers.TunnelPort:
		return true
	}
	return false
}

// connectWithin limits an attempt to connect.
const connectWithin = 10 * time.Second

func (p *pod) forward(from *net.TCPConn, to netip.AddrPort, dialer *net.Dialer) error {
	onward, err := p.dial(to, dialer)
	if err != nil {
		return err
	}
	defer onward.Close() //nolint:errcheck // a relay cannot report it
	defer context.AfterFunc(p.ctx, func() { _ = onward.Close() })()
	relay(from, onward)
	return nil
}

// dial connects from the pod's namespace.
func (p *pod) dial(to netip.AddrPort, dialer *net.Dialer) (*net.TCPConn, error) {
	p.relayed.Add(1)
	ctx, cancel := context.WithTimeout(p.ctx, connectWithin)
	defer cancel()
	var conn net.Conn
	err := namespace.Run(p.namespace, func() (err error) {
		conn, err = dialer.DialContext(ctx, "tcp", to.String())
		return err
	})
	if err != nil {
		return nil, err
	}
	onward, _ := conn.(*net.TCPConn) // a TCP connection is one
	return onward, nil
}

// foreign lets a socket have an address that is not the pod's (ip(7), ipv6(7)).
func foreign(fd int, is4 bool) error {
	if is4 {
		return errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TRANSPARENT, 1),
			unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_FREEBIND, 1))
	}
	return errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_TRANSPARENT, 1),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, 1))
}

func addressOf(a net.Addr) netip.AddrPort {
	tcp, _ := a.(*net.TCPAddr) // a TCP connection has one
	address := tcp.AddrPort()
	return netip.AddrPortFrom(address.Addr().Unmap(), address.Port())
}
