// SPDX-License-Identifier: Apache-2.0

package ambienttest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"syscall"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception/dataplanetest"
)

// TestStrict has a proxy that takes connections to its pod through the tunnel only. Connections
// from the pod pass.
func TestStrict(t *testing.T) {
	t.Parallel()
	socket := newSocket(t)
	server, _ := agent(t, socket)
	proxy := start(t, ProxyOptions{Socket: socket, Strict: true})
	pod := captured(t, server)
	// A connection within the pod takes the way of one that arrives.
	redirect(t, pod)
	for _, to := range []string{own + ":8080", "[fd00:10:244:1::a]:8080"} {
		if err := talk(t, pod, to, "hello"); !errors.Is(err, syscall.ECONNRESET) || proxy.Relayed() != 0 {
			t.Errorf("to %s: %v, %d relayed, want that it is reset", to, err, proxy.Relayed())
		}
	}
	seen, err := pod.Send(t.Context(), outward())
	if err != nil || seen.Verdict != dataplanetest.Accepted || proxy.Relayed() != 1 {
		t.Errorf("from the pod: %s, %v, %d relayed, want that one is accepted", seen, err, proxy.Relayed())
	}
	tunnel := netip.AddrPortFrom(netip.MustParseAddr(own), uint16(ambient.IstioNumbers().TunnelPort))
	if err := talk(t, pod, tunnel.String(), own+":8080\n"); err != nil || proxy.Relayed() != 2 {
		t.Errorf("through the tunnel: %v, %d relayed, want another one", err, proxy.Relayed())
	}
}

// own is the address of the tests' pods.
const own = "10.244.1.10"

// redirect sends connections from the pod to its application's port to the proxy, except for the
// proxy's own.
func redirect(t *testing.T, pod *dataplanetest.Pod) {
	t.Helper()
	const script = "table inet test { chain c { type nat hook output priority -150; tcp dport 8080 meta mark 0 redirect to :15006; }; }"
	err := pod.Do(func() error {
		if said, err := exec.CommandContext(t.Context(), "nft", script).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, said)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// talk opens a connection within a pod, says something, and waits for its end.
func talk(t *testing.T, pod *dataplanetest.Pod, to, what string) error {
	t.Helper()
	var conn net.Conn
	err := pod.Do(func() (err error) {
		conn, err = new(net.Dialer).DialContext(t.Context(), "tcp", to)
		return err
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(conn, what)
	if tcp, is := conn.(*net.TCPConn); is && err == nil {
		_ = tcp.CloseWrite() // a connection that was reset has no end to announce
	}
	_, readErr := io.ReadAll(conn)
	return errors.Join(err, readErr, conn.Close())
}
