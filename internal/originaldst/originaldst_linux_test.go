// SPDX-License-Identifier: Apache-2.0

package originaldst

import (
	"errors"
	"net"
	"net/netip"
	"testing"
)

// accept makes a connection and returns the accepting side.
func accept(t *testing.T, network, address string) *net.TCPConn {
	t.Helper()
	listener, err := net.ListenTCP(network, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address)))
	if err != nil {
		t.Fatal(err)
	}
	client, err := net.Dial(network, listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = client.Close(), listener.Close() })
	accepted, err := listener.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = accepted.Close() })
	return accepted
}

// No rule touches this connection. If another program on this machine uses connection tracking, the
// kernel has a record of it. The tests of interception/dataplanetest cover redirected connections.
func TestUntouchedConnection(t *testing.T) {
	t.Parallel()
	for network, address := range map[string]string{"tcp4": "127.0.0.1:0", "tcp6": "[::1]:0"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			conn := accept(t, network, address)
			got, err := Of(conn)
			if err != nil {
				t.Fatal(err)
			}
			if got.IsValid() && got.String() != conn.LocalAddr().String() {
				t.Errorf("original destination is %s, want %s or none", got, conn.LocalAddr())
			}
		})
	}
}

func TestClosedConnection(t *testing.T) {
	t.Parallel()
	conn := accept(t, "tcp4", "127.0.0.1:0")
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := Of(conn); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v, %v, want %v", got, err, net.ErrClosed)
	}
}
