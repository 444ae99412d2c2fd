// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"net/netip"
	"strings"
	"testing"
)

// TestConnectionStaysOpen uses one connection twice, and closes it. Orders without a name open new
// ones.
func TestConnectionStaysOpen(t *testing.T) {
	t.Parallel()
	listener, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	accepted, ended := make(chan struct{}, 10), make(chan error, 10)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // the test has ended
			}
			accepted <- struct{}{}
			go func() { ended <- serve(conn, "stock") }()
		}
	}()
	to := netip.MustParseAddrPort(listener.Addr().String())
	all := connections{}
	talk := func(o order) {
		t.Helper()
		o.Network, o.Destination = "tcp4", to
		r := all.obey(t.Context(), o)
		if r.Failure != "" || r.Answer.Listener != "stock" || r.Answer.Client != to.Addr() || r.Answer.Original != to {
			t.Errorf("%+v is answered %+v", o, r)
		}
	}
	talk(order{Connection: "a"})
	talk(order{Connection: "a"})
	if n := len(accepted); n != 1 {
		t.Errorf("two orders with one name open %d connections", n)
	}
	talk(order{})
	talk(order{Connection: "b"})
	if n := len(accepted); n != 3 {
		t.Errorf("%d connections are open, want 3", n)
	}
	if err := <-ended; err != nil { // that without a name
		t.Errorf("a listener says %v, want that the connection has ended", err)
	}
	if r := all.obey(t.Context(), order{Connection: "a", Close: true}); r.Failure != "" {
		t.Errorf("closing is reported as %+v", r)
	}
	if err := <-ended; err != nil {
		t.Errorf("a listener says %v, want that the connection has ended", err)
	}
	if r := all.obey(t.Context(), order{Connection: "a", Close: true}); !strings.Contains(r.Failure, `"a"`) {
		t.Errorf("closing a closed connection is reported as %+v", r)
	}
	talk(order{Connection: "b"})
}
