// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// place is where a connection is answered.
type place string

const (
	deskOutbound place = "outbound" // the proxy's outbound port
	deskInbound  place = "inbound"  // the proxy's inbound port
	// deskOpen is a port of the validator's own, which captured connections do not reach.
	deskOpen place = "open"
)

// greeting precedes a nonce.
const greeting = "mesh-validator "

const (
	// maxLine limits what is read from any client.
	maxLine = 4 << 10
	// maxVisitors limits the connections at once: the ports are open to the network.
	maxVisitors = 64
)

// desk answers on the ports, in a way that no other process can.
type desk struct {
	key []byte
	// transparent is true if the sockets may have foreign addresses, as TPROXY needs.
	transparent bool
	// probePort is the probe's port. probed receives probes by family, and all probes under the
	// empty family.
	probePort uint16
	probed    map[family]chan probe
	// passed is true if everything but the probe is captured. Only then does a probe get a success,
	// which lets the pod continue.
	passed atomic.Bool

	listeners []net.Listener
	serving   sync.WaitGroup
}

type probe struct {
	from     net.Addr
	captured bool
	// success is true if the kubelet has received a success.
	success bool
}

func newDesk(probePort uint16) *desk {
	d := &desk{key: make([]byte, sha256.Size), probePort: probePort, probed: map[family]chan probe{}}
	_, _ = rand.Read(d.key) // crypto/rand never fails
	for _, f := range []family{"", ipv4, ipv6} {
		d.probed[f] = make(chan probe, maxVisitors)
	}
	return d
}

func (d *desk) answer(at place, nonce string) string {
	mac := hmac.New(sha256.New, d.key)
	_, _ = io.WriteString(mac, string(at)+" "+nonce) // hash.Hash never fails
	return hex.EncodeToString(mac.Sum(nil)) + "\n"
}

// open listens on a port of a family, 0 for any, and returns the port.
func (d *desk) open(ctx context.Context, at place, f family, port uint16) (uint16, error) {
	network := map[family]string{ipv4: "tcp4", ipv6: "tcp6"}[f]
	config := net.ListenConfig{}
	config.SetMultipathTCP(false) // rules are about TCP
	if at == deskInbound {
		config.Control = d.becomeTransparent
	}
	listener, err := config.Listen(ctx, network, fmt.Sprintf(":%d", port))
	if err != nil {
		return 0, fmt.Errorf("listen in place of the proxy, which must not run yet: %w", err)
	}
	d.listeners = append(d.listeners, listener)
	d.serving.Go(func() { d.serve(listener, at) })
	return netip.MustParseAddrPort(listener.Addr().String()).Port(), nil
}

// close closes all ports. It may be called again.
func (d *desk) close() {
	for _, l := range d.listeners {
		_ = l.Close() // it may be closed already
	}
	d.serving.Wait()
}

func (d *desk) serve(listener net.Listener, at place) {
	visitors := make(chan struct{}, maxVisitors)
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // the client has closed that connection
		}
		visitors <- struct{}{}
		d.serving.Go(func() {
			defer func() { <-visitors }()
			defer conn.Close() //nolint:errcheck // the answer is already sent
			d.attend(conn, at)
		})
	}
}

func (d *desk) attend(conn net.Conn, at place) {
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return
	}
	reader := bufio.NewReader(io.LimitReader(conn, maxLine))
	line, err := reader.ReadString('\n')
	if err != nil {
		return
	}
	if nonce, is := strings.CutPrefix(strings.TrimSpace(line), greeting); is {
		// A client that misses the answer tries again.
		_, _ = io.WriteString(conn, d.answer(at, nonce))
		return
	}
	if strings.HasPrefix(line, "GET ") && d.probePort != 0 {
		// Unread data would reset the connection before the client reads the answer.
		for err == nil && strings.TrimSpace(line) != "" {
			line, err = reader.ReadString('\n')
		}
		d.attendProbe(conn, at)
	}
}

// attendProbe answers the kubelet, and reports what the probe proves.
func (d *desk) attendProbe(conn net.Conn, at place) {
	to := destination(conn)
	local, ok := conn.LocalAddr().(*net.TCPAddr)
	if to.Port() != d.probePort || !ok || to.Addr().IsLoopback() || at == deskOutbound {
		_, _ = io.WriteString(conn, httpAnswer("404 Not Found", "no probe"))
		return
	}
	p := probe{from: conn.RemoteAddr(), captured: at == deskInbound}
	status, text := "503 Service Unavailable", "not captured"
	switch {
	case p.captured && d.passed.Load():
		status, text, p.success = "200 OK", "captured", true
	case p.captured:
		text = "captured, but the rest isn't yet"
	}
	if _, err := io.WriteString(conn, httpAnswer(status, text)); err != nil {
		p.success = false // the kubelet did not receive it, and probes again
	}
	for _, f := range []family{"", familyOf(local.AddrPort().Addr())} {
		select {
		case d.probed[f] <- p:
		default: // no check is waiting
		}
	}
}

func httpAnswer(status, text string) string {
	return fmt.Sprintf("HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n", status, len(text)+1, text)
}
