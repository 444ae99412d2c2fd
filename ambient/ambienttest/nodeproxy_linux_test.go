// SPDX-License-Identifier: Apache-2.0

package ambienttest_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest"
	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
	"github.com/meshcni/meshcni/internal/testing/talk"
)

// TestNodeProxy follows connections from a pod of the mesh and to it: the application sees its
// client's address, and the proxy learns the destination.
func TestNodeProxy(t *testing.T) {
	t.Parallel()
	eachFamily(t, func(t *testing.T, family interception.Family) {
		t.Helper()
		both := capturedBy(t, ambienttest.NodeProxyOptions{TunnelsTo: 8080})
		n, away := both[0], both[1].plain
		for i, w := range []struct {
			from, to *nodes.Place
			port     uint16
			by       interception.Port
		}{
			{n.web, away, 8080, 15001},
			{n.web, n.plain, 8080, 15001},
			{away, n.web, 8080, 15006},
			{n.plain, n.web, 8080, 15006},
			{away, n.web, 15008, 15008},
		} {
			client, to := in(w.from, family), netip.AddrPortFrom(in(w.to, family), w.port)
			got, err := visit(t, w.from, "tcp", to)
			if err != nil || got.Client.Addr() != client || got.Server != netip.AddrPortFrom(to.Addr(), 8080) {
				t.Errorf("%s to %s: the application sees %v, %v", w.from.Name, to, got, err)
			}
			took, fails := n.seen()
			if len(took) != 1 || took[0].Port != w.by || took[0].From.Addr() != client || took[0].To != to || fails != nil {
				t.Errorf("%s to %s: the proxy took %v, want it at %d; %v", w.from.Name, to, took, w.by, fails)
			}
			if n.proxy.Relayed() != i+1 {
				t.Errorf("the proxy has relayed %d connections, want %d", n.proxy.Relayed(), i+1)
			}
		}
	})
}

// TestNodeProxyMarksNothing looks at the proxy's listeners and connections from outside: the kernel
// would send what has a mark by other routes.
func TestNodeProxyMarksNothing(t *testing.T) {
	t.Parallel()
	both := capturedBy(t, ambienttest.NodeProxyOptions{})
	talk.Echo(t, both[1].plain)
	for _, address := range both[1].plain.Addresses {
		if err := talk.Say(talk.Call(t, both[0].web, address), "here"); err != nil {
			t.Fatal(err)
		}
	}
	sockets := sandboxtest.Run(t, both[0].own.Netns.File(), "", "ss", "-Hntae")
	if lines := strings.Count(sockets, "\n"); lines != 3*2+2*2 || strings.Contains(sockets, "fwmark") {
		t.Errorf("the proxy has %d sockets, want three listeners and two ends of a connection of each family, and none with a mark:\n%s",
			lines, sockets)
	}
}

// TestNodeProxyChoosesPortsAsClientsDo looks at the ports from which the proxy connects: the kernel
// chooses for clients that connect among those at an even distance from the first of the range, and
// for sockets that are bound before among the others.
func TestNodeProxyChoosesPortsAsClientsDo(t *testing.T) {
	t.Parallel()
	eachFamily(t, func(t *testing.T, family interception.Family) {
		t.Helper()
		both := capturedBy(t, ambienttest.NodeProxyOptions{})
		n, away := both[0], both[1].plain
		first, _, _ := strings.Cut(sandboxtest.Run(t, n.own.Netns.File(), "", "cat", "/proc/sys/net/ipv4/ip_local_port_range"), "\t")
		low, err := strconv.Atoi(first)
		if err != nil {
			t.Fatal(err)
		}
		for range 8 {
			got, err := visit(t, n.web, "tcp", netip.AddrPortFrom(in(away, family), 8080))
			if err != nil || (int(got.Client.Port())-low)%2 != 0 {
				t.Errorf("the application sees %v, %v", got, err)
			}
		}
	})
}

// TestNodeProxyKeepsApart has a connection whose client has the destination's address. With that
// address the connection onward could have two equal ends, and it gets one of the proxy's pod.
func TestNodeProxyKeepsApart(t *testing.T) {
	t.Parallel()
	n := capturedBy(t, ambienttest.NodeProxyOptions{TunnelsTo: 8080})[0]
	serve(t, n.own, 8080)
	for _, family := range []interception.Family{interception.IPv4, interception.IPv6} {
		own, other := in(n.own, family), map[interception.Family]string{interception.IPv4: "203.0.113.5", interception.IPv6: "2001:db8::5"}[family]
		sandboxtest.Run(t, n.own.Netns.File(), "", "ip", "route", "add", "local", other, "dev", "lo", "src", own.String())
		address := netip.MustParseAddr(other)
		dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(address, 0)), Control: freeBind}
		conn, err := dial(t, n.own, dialer, netip.AddrPortFrom(address, 15008))
		if err != nil {
			t.Fatal(err)
		}
		said, err := bufio.NewReader(conn).ReadString('\n')
		client, _, _ := strings.Cut(said, " ")
		if seen, err2 := netip.ParseAddrPort(client); errors.Join(err, err2) != nil || seen.Addr() != own {
			t.Errorf("%s to itself: the application says %q, %v, want a client at %s", address, said, err, own)
		}
	}
}

// freeBind lets a socket have an address that no interface has.
func freeBind(network, _ string, raw syscall.RawConn) error {
	var refused error
	err := raw.Control(func(fd uintptr) {
		if network == "tcp4" {
			refused = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_FREEBIND, 1)
		} else {
			refused = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, 1)
		}
	})
	return errors.Join(err, refused)
}

// wantReset expects that the proxy accepts a connection and resets it.
func wantReset(t *testing.T, from *nodes.Place, to netip.AddrPort) {
	t.Helper()
	conn, err := dial(t, from, net.Dialer{}, to)
	if errors.Is(err, syscall.ECONNRESET) { // before the client looks
		return
	}
	if err != nil {
		t.Errorf("%s to %s: %v", from.Name, to, err)
		return
	}
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%s to %s: %d bytes, %v, want a reset", from.Name, to, n, err)
	}
}

// TestNodeProxyRefusesItself asks the proxy to connect to its own pod: to its ports, directly and
// captured, to another port, and to an address of a wire. Each connection would come back, again
// and again.
func TestNodeProxyRefusesItself(t *testing.T) {
	t.Parallel()
	eachFamily(t, func(t *testing.T, family interception.Family) {
		t.Helper()
		n := capturedBy(t, ambienttest.NodeProxyOptions{})[0]
		own := in(n.own, family)
		wire := ambient.IstioNodeNumbers().InboundWire.ProxyAddresses[slices.Index([]interception.Family{interception.IPv4, interception.IPv6}, family)].Addr()
		loopback := map[interception.Family]string{interception.IPv4: "127.0.0.2", interception.IPv6: "::1"}[family]
		for i, w := range []struct {
			from *nodes.Place
			to   netip.AddrPort
		}{
			{n.plain, netip.AddrPortFrom(own, 15001)},
			{n.plain, netip.AddrPortFrom(own, 15006)},
			{n.plain, netip.AddrPortFrom(own, 15008)},
			{n.web, netip.AddrPortFrom(own, 15001)},
			{n.web, netip.AddrPortFrom(own, 9)},
			{n.web, netip.AddrPortFrom(wire, 15001)},
			{n.own, netip.AddrPortFrom(netip.MustParseAddr(loopback), 15001)},
		} {
			wantReset(t, w.from, w.to)
			took, fails := n.seen()
			if len(took) != 1 || took[0].To != w.to || len(fails) != 1 || !errors.Is(fails[0], ambienttest.ErrLoop) {
				t.Errorf("%d, %s to %s: it took %v, and says %v", i, w.from.Name, w.to, took, fails)
			}
		}
		if n.proxy.Relayed() != 0 {
			t.Errorf("it has relayed %d connections", n.proxy.Relayed())
		}
	})
}

// TestNodeProxyDrains ends a proxy that has connections: it takes no new ones, while those that it
// has go on until they end or the context does.
func TestNodeProxyDrains(t *testing.T) {
	t.Parallel()
	for name, ending := range map[string]func(net.Conn, context.CancelFunc){
		"the client ends":  func(conn net.Conn, _ context.CancelFunc) { _ = conn.Close() },
		"the context ends": func(_ net.Conn, cut context.CancelFunc) { cut() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachFamily(t, func(t *testing.T, family interception.Family) {
				t.Helper()
				both := capturedBy(t, ambienttest.NodeProxyOptions{})
				n, away := both[0], both[1].plain
				talk.Echo(t, away)
				conn := talk.Call(t, n.web, in(away, family))
				if err := talk.Say(conn, "before"); err != nil {
					t.Fatal(err)
				}
				ctx, cut := context.WithCancel(t.Context())
				defer cut()
				drained := make(chan struct{})
				go func() {
					defer close(drained)
					n.proxy.Drain(ctx)
				}()
				for _, port := range []uint16{15001, 15006, 15008} {
					for { // until the listener is closed
						if _, err := dial(t, n.plain, net.Dialer{}, netip.AddrPortFrom(in(n.own, family), port)); errors.Is(err, syscall.ECONNREFUSED) {
							break
						}
					}
				}
				if err := talk.Say(conn, "meanwhile"); err != nil {
					t.Errorf("while the proxy drains: %v", err)
				}
				select {
				case <-drained:
					t.Error("it does not wait for the connection")
				default:
				}
				ending(conn, cut)
				<-drained
				if err := talk.Say(conn, "after"); err == nil {
					t.Error("the connection has not ended")
				}
			})
		})
	}
}

// TestNodeProxyCloses ends a proxy with its connections at once.
func TestNodeProxyCloses(t *testing.T) {
	t.Parallel()
	both := capturedBy(t, ambienttest.NodeProxyOptions{})
	talk.Echo(t, both[1].plain)
	conn := talk.Call(t, both[0].web, both[1].plain.Addresses[0])
	if err := talk.Say(conn, "before"); err != nil {
		t.Fatal(err)
	}
	if err := both[0].proxy.Close(); err != nil {
		t.Error(err)
	}
	if err := talk.Say(conn, "after"); err == nil {
		t.Error("the connection has not ended")
	}
	if _, err := dial(t, both[0].plain, net.Dialer{}, netip.AddrPortFrom(both[0].own.Addresses[0], 15001)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("its listener: %v", err)
	}
}

// TestNodeProxyTunnels has a pod of the mesh connect to one on another node, whose proxy gets the
// connection by a tunnel, and clients that break the tunnel's rule.
func TestNodeProxyTunnels(t *testing.T) {
	t.Parallel()
	eachFamily(t, func(t *testing.T, family interception.Family) {
		t.Helper()
		both := capturedBy(t, ambienttest.NodeProxyOptions{Tunnels: func(netip.Addr) bool { return true }})
		client, server := both[0].web, both[1].web
		to := netip.AddrPortFrom(in(server, family), 8080)
		got, err := visit(t, client, "tcp", to)
		if err != nil || got.Client.Addr() != in(client, family) || got.Server != to {
			t.Errorf("the application sees %v, %v", got, err)
		}
		took, fails := both[0].seen()
		if len(took) != 1 || took[0].Port != 15001 || took[0].To != to || fails != nil {
			t.Errorf("the client's proxy took %v, %v", took, fails)
		}
		tunnel := netip.AddrPortFrom(to.Addr(), 15008)
		took, fails = both[1].seen()
		if len(took) != 1 || took[0].Port != 15008 || took[0].To != tunnel || took[0].From.Addr() != in(client, family) || fails != nil {
			t.Errorf("the server's proxy took %v, %v", took, fails)
		}
		for head, want := range map[string]string{
			netip.AddrPortFrom(in(both[1].plain, family), 8080).String() + "\n": "the tunnel to",
			"GET / HTTP/1.1\n":        "GET",
			strings.Repeat("1", 1000): "no destination",
		} {
			conn, err := dial(t, both[0].plain, net.Dialer{}, tunnel)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Write([]byte(head)); err != nil {
				t.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, conn); n != 0 || !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("a tunnel that begins with %q: %d bytes, %v, want a reset", head, n, err)
			}
			if _, fails = both[1].seen(); len(fails) != 1 || !strings.Contains(fails[0].Error(), want) {
				t.Errorf("a tunnel that begins with %q: the proxy says %v, want %q", head, fails, want)
			}
		}
	})
}

// TestNodeProxyAnswersQueries sends queries by UDP, which the node redirects to the proxy's pod,
// and by TCP, to the pod. The resolver sees the proxy ask.
func TestNodeProxyAnswersQueries(t *testing.T) {
	t.Parallel()
	both := captured(t)
	n, away := both[0], both[1].plain
	var resolvers []netip.AddrPort
	for _, address := range away.Addresses {
		resolvers = append(resolvers, netip.AddrPortFrom(address, 8080))
	}
	n.start(ambienttest.NodeProxyOptions{Resolvers: resolvers})
	for i, resolver := range resolvers {
		own := n.own.Addresses[i]
		for network, w := range map[string]struct {
			from *nodes.Place
			to   netip.AddrPort
		}{
			"udp": {n.web, netip.AddrPortFrom(in(both[1].web, interception.FamilyOf(own)), 53)},
			"tcp": {n.plain, netip.AddrPortFrom(own, 15053)},
		} {
			before := n.proxy.Relayed()
			got, err := visit(t, w.from, network, w.to)
			if err != nil || got.Server != resolver || got.Client.Addr() != own || n.proxy.Relayed() != before+1 {
				t.Errorf("a query over %s to %s: the resolver sees %v, %v, want %s asked by %s", network, w.to, got, err, resolver, own)
			}
		}
	}
	ctx, cut := context.WithCancel(t.Context())
	cut()
	n.proxy.Drain(ctx)
	for i, network := range []string{"udp", "tcp"} {
		if got, err := visit(t, n.plain, network, netip.AddrPortFrom(n.own.Addresses[i], 15053)); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a query over %s of a proxy that has ended: %v, %v", network, got, err)
		}
	}
}

// TestNodeProxyInItsPod starts a proxy in the network namespace of this process.
func TestNodeProxyInItsPod(t *testing.T) {
	t.Parallel()
	fails := make(chan error, 2)
	proxy, err := ambienttest.StartNodeProxy(ambienttest.NodeProxyOptions{
		Numbers: ambient.IstioNodeNumbers(), Observe: func(_ ambienttest.Taken, err error) { fails <- err },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", "127.0.0.1:15006")
	if err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatal(err)
	}
	if err == nil {
		defer conn.Close()
	}
	if first, then := <-fails, <-fails; first != nil || !errors.Is(then, ambienttest.ErrLoop) {
		t.Errorf("the proxy says %v, and then %v", first, then)
	}
}

// TestNodeProxyErrors starts proxies that cannot work. What they have opened is closed again.
func TestNodeProxyErrors(t *testing.T) {
	t.Parallel()
	n := capturedBy(t, ambienttest.NodeProxyOptions{})[0]
	silent := nodes.New(t)[0].NewPod("0004")
	resolvers := []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:53")}
	occupied := ambient.IstioNodeNumbers()
	occupied.TunnelPort = 8080
	for name, test := range map[string]struct {
		options ambienttest.NodeProxyOptions
		is      error
		says    string
	}{
		"a port in use":        {ambienttest.NodeProxyOptions{Netns: n.plain.Netns, Numbers: occupied}, syscall.EADDRINUSE, "port 8080"},
		"no numbers":           {ambienttest.NodeProxyOptions{Netns: n.plain.Netns}, ambient.ErrNumbers, ""},
		"no address for a DNS": {ambienttest.NodeProxyOptions{Netns: silent.Netns, Numbers: ambient.IstioNodeNumbers(), Resolvers: resolvers}, nil, "listen for queries"},
	} {
		proxy, err := ambienttest.StartNodeProxy(test.options)
		if err == nil {
			_ = proxy.Close() // which returns nil
		}
		if err == nil || test.is != nil && !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if sockets := sandboxtest.Run(t, n.plain.Netns.File(), "", "ss", "-Hntl"); strings.Contains(sockets, ":150") {
		t.Errorf("proxies that did not start have listeners:\n%s", sockets)
	}
	var err error
	if sandboxtest.AsAnotherUser(t, func() {
		_, err = ambienttest.StartNodeProxy(ambienttest.NodeProxyOptions{Numbers: ambient.IstioNodeNumbers()})
	}) && (!errors.Is(err, syscall.EPERM) || !strings.Contains(err.Error(), "CAP_NET_ADMIN")) {
		t.Errorf("as another user: %v", err)
	}
}
