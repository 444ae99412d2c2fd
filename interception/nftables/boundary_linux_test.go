// SPDX-License-Identifier: Apache-2.0

package nftables_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/meshcni/meshcni/interception"
)

// TestBoundaries makes connections to the first and last addresses and ports that rules name, and
// to their neighbours. No program listens on the ports that are not redirected.
func TestBoundaries(t *testing.T) {
	t.Parallel()
	ns := newPod(t)
	proxy := ns.listen(t)
	port := interception.Port(proxy.Port())
	type match = interception.Match
	stays := interception.Return{}
	ns.apply(t, build(t, "mesh-test", func(b *interception.Builder) {
		set := b.Set("excluded-v4", prefixes("127.0.1.0/24", "127.0.2.0/25", "127.255.0.0/16"), "excluded")
		c, tcp := b.NAT("output"), interception.TCP()
		c.Entry(interception.Output, match{Out: interception.Is(interception.Interfaces("lo"))}, "all")
		c.Do("by.set", match{DstSet: interception.Is(set)}, stays, "excluded")
		c.Do("by.prefixes", match{Dst: interception.Is(prefixes("127.1.0.0/16", "127.2.128.0/17"))}, stays, "excluded")
		c.Do("by.v6", match{Dst: interception.Is(prefixes("::1/128")), L4: tcp.To(interception.Ports(90))}, stays, "excluded")
		c.Do("by.uids", match{UID: interception.Not(interception.UIDs(0, 1000, 1001))}, stays, "excluded")
		c.Do("by.ports", match{L4: tcp.NotTo(interception.PortRange(80, 99))}, stays, "excluded")
		c.Do("capture", match{L4: tcp, UID: interception.Is(interception.UIDs(0, 5))}, interception.RedirectTo{Port: port}, "captured")
	}))
	for to, captured := range map[string]bool{
		"127.0.0.1:80":     true,
		"127.0.0.1:99":     true,
		"127.0.0.1:100":    false, // not among the ports
		"127.0.1.0:80":     false, // first of a set's interval
		"127.0.2.127:80":   false, // last of the same, which two prefixes make
		"127.0.2.128:80":   true,  // just above it
		"127.0.0.255:80":   true,  // just below it
		"127.255.0.1:80":   false,
		"127.1.2.3:80":     false, // literal prefixes
		"127.2.127.255:80": true,
		"127.2.128.0:80":   false,
		"127.3.0.0:80":     true,
		"[::1]:80":         true,
		"[::1]:90":         false,
	} {
		address := netip.MustParseAddrPort(to)
		if err := ns.dial(t, address); captured && err != nil || !captured && !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: got %v, captured: want %t", to, err, captured)
		}
	}
}

func (p *pod) listen(t *testing.T) netip.AddrPort {
	t.Helper()
	var listener net.Listener
	if err := p.Namespace.Do(func() (err error) {
		listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", ":0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return netip.MustParseAddrPort(listener.Addr().String())
}

func (p *pod) dial(t *testing.T, to netip.AddrPort) error {
	t.Helper()
	return p.Namespace.Do(func() error {
		connection, err := new(net.Dialer).DialContext(context.WithoutCancel(t.Context()), "tcp", to.String())
		if err != nil {
			return err
		}
		return connection.Close()
	})
}
