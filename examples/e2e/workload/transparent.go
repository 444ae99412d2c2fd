// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tunnelPort is the port for connections from other proxies. This proxy has no tunnels, and treats
// these connections like all others.
const tunnelPort = 15008

const (
	// quiet is how long a proxy that ends waits for another connection before it closes its
	// listeners: the node learns at the same time that another proxy is ready and that this one ends.
	quiet = time.Second
	// drainTime is how long connections may then go on.
	drainTime = 5 * time.Second
)

// transparentProxy serves the connections that a node captures: it accepts them for any
// destination, and connects there with its client's address.
type transparentProxy struct {
	ctx    context.Context //nolint:containedctx // its connections end with it
	busy   sync.WaitGroup
	taken  chan struct{} // a value for each connection; nothing waits for it
	closed []net.Listener
}

// transparent runs the proxy until the context ends, and then until its connections have ended.
func transparent(ctx context.Context) error {
	connections, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	p := &transparentProxy{ctx: connections, taken: make(chan struct{}, 1)}
	failures := make(chan error, 1)
	config := net.ListenConfig{Control: anyAddress}
	config.SetMultipathTCP(false)
	for _, port := range []int{outboundPort, inboundPort, tunnelPort} {
		for _, network := range []string{"tcp4", "tcp6"} {
			listener, err := config.Listen(connections, network, net.JoinHostPort("", strconv.Itoa(port)))
			if err != nil {
				return err
			}
			p.closed = append(p.closed, listener)
			p.busy.Go(func() { p.accept(listener) })
		}
	}
	health := &http.Server{
		Addr: net.JoinHostPort("", strconv.Itoa(healthPort)), ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }),
	}
	go func() { failures <- health.ListenAndServe() }()
	select {
	case err := <-failures:
		return err
	case <-ctx.Done():
	}
	p.drain(cut)
	return nil
}

// drain closes the listeners once no more connections come, and cuts connections that do not end.
func (p *transparentProxy) drain(cut func()) {
	for waiting := true; waiting; {
		select {
		case <-p.taken:
		case <-time.After(quiet):
			waiting = false
		}
	}
	for _, listener := range p.closed {
		_ = listener.Close()
	}
	defer time.AfterFunc(drainTime, cut).Stop()
	p.busy.Wait()
}

// anyAddress lets a socket have the addresses of others.
func anyAddress(network, _ string, conn syscall.RawConn) error {
	level, option := unix.IPPROTO_IP, unix.IP_TRANSPARENT
	if network == "tcp6" {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_TRANSPARENT
	}
	var refused error
	err := conn.Control(func(fd uintptr) { refused = unix.SetsockoptInt(int(fd), level, option, 1) })
	return errors.Join(err, refused)
}

func (p *transparentProxy) accept(listener net.Listener) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return // it was closed
		}
		select {
		case p.taken <- struct{}{}:
		default:
		}
		if tcp, is := connection.(*net.TCPConn); is {
			p.busy.Go(func() { p.relay(tcp) })
		}
	}
}

// relay forwards a connection to the destination that it was captured for. One that was made to the
// proxy itself has none.
func (p *transparentProxy) relay(from *net.TCPConn) {
	defer from.Close() //nolint:errcheck // the client has what there is
	defer context.AfterFunc(p.ctx, func() { _ = from.Close() })()
	client, to := endOf(from.RemoteAddr()), endOf(from.LocalAddr())
	if port := to.Port(); port == outboundPort || port == inboundPort || port == tunnelPort {
		return
	}
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(client.Addr(), 0)), Control: anyAddress}
	onward, err := dialer.DialContext(p.ctx, "tcp", to.String())
	if err != nil {
		fmt.Fprintf(os.Stderr, "connect from %s to %s: %v\n", client, to, err)
		return
	}
	defer onward.Close() //nolint:errcheck // likewise
	defer context.AfterFunc(p.ctx, func() { _ = onward.Close() })()
	p.busy.Go(func() {
		_, _ = io.Copy(onward, from) // a failure ends the connection, which its client notices
		if tcp, is := onward.(*net.TCPConn); is {
			_ = tcp.CloseWrite()
		}
	})
	_, _ = io.Copy(from, onward)
}

func endOf(address net.Addr) netip.AddrPort {
	tcp, is := address.(*net.TCPAddr)
	if !is {
		return netip.AddrPort{}
	}
	end := tcp.AddrPort()
	return netip.AddrPortFrom(end.Addr().Unmap(), end.Port())
}
