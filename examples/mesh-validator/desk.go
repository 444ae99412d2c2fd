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
	deskOutbound place = "outbound" // the proxy's port for what leaves
	deskInbound  place = "inbound"  // the proxy's port for what comes
	deskOpen     place = "open"     // a port of the validator's own, where nothing should come that is captured
)

// greeting is in front of a nonce.
const greeting = "mesh-validator "

const (
	// maxLine bounds what is read of anybody.
	maxLine = 4 << 10
	// maxVisitors bounds how many are listened to at once: the ports are open to the network.
	maxVisitors = 64
)

// desk answers on the ports, in a way that only this process can.
type desk struct {
	key []byte
	// transparent says that the sockets may have others' addresses, as TPROXY wants it.
	transparent bool
	// probePort is that of the probe, and probed is told of probes: by family, and under the empty one of all.
	probePort uint16
	probed    map[family]chan probe
	// passed says that all but the probe is captured: only then a probe is answered with success, which lets the pod go on.
	passed atomic.Bool

	listeners []net.Listener
	serving   sync.WaitGroup
}

// probe is a startup probe that came.
type probe struct {
	from     net.Addr
	captured bool
	// success says that the kubelet has heard so.
	success bool
}

func newDesk(probePort uint16) *desk {
	d := &desk{key: make([]byte, sha256.Size), probePort: probePort, probed: map[family]chan probe{}}
	_, _ = rand.Read(d.key) // never fails (crypto/rand)
	for _, f := range []family{"", ipv4, ipv6} {
		d.probed[f] = make(chan probe, maxVisitors)
	}
	return d
}

// answer is what a place answers to a nonce.
func (d *desk) answer(at place, nonce string) string {
	mac := hmac.New(sha256.New, d.key)
	_, _ = io.WriteString(mac, string(at)+" "+nonce) // never fails (hash.Hash)
	return hex.EncodeToString(mac.Sum(nil)) + "\n"
}

// open listens on a port of a family, 0 for any, and returns it.
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

// close gives up all ports. It may be called again.
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
			continue // that connection has gone already
		}
		visitors <- struct{}{}
		d.serving.Go(func() {
			defer func() { <-visitors }()
			defer conn.Close() //nolint:errcheck // all has been said
			d.attend(conn, at)
		})
	}
}

// attend answers one connection.
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
		_, _ = io.WriteString(conn, d.answer(at, nonce)) // who doesn't hear it tries again
		return
	}
	if strings.HasPrefix(line, "GET ") && d.probePort != 0 {
		for err == nil && strings.TrimSpace(line) != "" { // what was not read would break the connection off before the answer is heard
			line, err = reader.ReadString('\n')
		}
		d.attendProbe(conn, at)
	}
}

// attendProbe answers the kubelet, and tells what that proves.
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
		text = "captured, and the rest isn't yet"
	}
	if _, err := io.WriteString(conn, httpAnswer(status, text)); err != nil {
		p.success = false // the kubelet hasn't heard it, and asks again
	}
	for _, f := range []family{"", familyOf(local.AddrPort().Addr())} {
		select {
		case d.probed[f] <- p:
		default: // nobody waits
		}
	}
}

func httpAnswer(status, text string) string {
	return fmt.Sprintf("HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n", status, len(text)+1, text)
}
