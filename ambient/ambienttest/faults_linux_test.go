// SPDX-License-Identifier: Apache-2.0

package ambienttest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/zds"
	"github.com/meshcni/meshcni/interception/dataplanetest"
)

// events runs a server for proxies, and returns what it observes.
func events(t *testing.T, o zds.Options) (*zds.Server, string, <-chan zds.Event) {
	t.Helper()
	seen := make(chan zds.Event, 1000)
	o.Observe = func(e zds.Event) { seen <- e }
	socket := newSocket(t)
	server, err := zds.Listen(t.Context(), socket, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.Serve(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return server, socket, seen
}

// TestFaults has proxies that misbehave in one way each, and tests what the agent's side says.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		faults Faults
		want   string // in the error of an event
	}{
		"no hello":                     {Faults{NoHello: true}, "hello"},
		"no ack":                       {Faults{NoAck: true}, "has not acknowledged add within"},
		"a late ack":                   {Faults{LateAck: time.Hour}, "has not acknowledged add within"},
		"an ack that is not asked for": {Faults{Unasked: true}, "a message that is no answer"},
		"hangs up":                     {Faults{HangUpAfter: 1}, "the proxy has closed it"},
		"exits":                        {Faults{HangUpAfter: 1, Exit: true}, "the proxy has closed it"},
		"refuses first":                {Faults{RefuseFirst: 2}, "pod a is refused 2 times"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, socket, seen := events(t, zds.Options{Timeout: 200 * time.Millisecond, Again: 10 * time.Millisecond})
			_, namespace := newPod(t)
			if err := server.Set(workload("a"), namespace); err != nil {
				t.Fatal(err)
			}
			proxy := start(t, ProxyOptions{Socket: socket, Faults: test.faults})
			for event := range seen {
				if event.Err != nil {
					if !strings.Contains(event.Err.Error(), test.want) {
						t.Errorf("the agent's side says %q, want %q", event.Err, test.want)
					}
					break
				}
			}
			if test.faults.RefuseFirst > 0 {
				await(t, server, "a") // it is sent again until it is served
			}
			if test.faults.Exit {
				awaitListening(t, watch(t, namespace), false)
				<-proxy.Done() // it does not come back
			}
		})
	}
}

// TestTwoAtOnce has a proxy with two connections at once: both are told of the pod, in their
// snapshots, and that it is gone.
func TestTwoAtOnce(t *testing.T) {
	t.Parallel()
	server, socket, seen := events(t, zds.Options{})
	_, namespace := newPod(t)
	if err := server.Set(workload("a"), namespace); err != nil {
		t.Fatal(err)
	}
	proxy := start(t, ProxyOptions{Socket: socket, Faults: Faults{Twice: true}})
	told := func(kind zds.Kind, times int) {
		t.Helper()
		for event := range seen {
			if event.Err != nil {
				t.Fatal(event.Err)
			}
			if event.Request.Kind == kind {
				times--
			}
			if times == 0 {
				return
			}
		}
	}
	told(zds.KindSnapshotSent, 2)
	if !proxy.Serves("a") {
		t.Error("the pod is not served")
	}
	server.Delete("a")
	told(zds.KindDel, 2)
	await(t, server, "a")
	if proxy.Serves("a") {
		t.Error("the pod is served")
	}
}

// TestLostListeners closes the listeners without the proxy's knowledge: new connections are
// refused, and the proxy says that it serves the pod.
func TestLostListeners(t *testing.T) {
	t.Parallel()
	socket := newSocket(t)
	server, _ := agent(t, socket)
	proxy := start(t, ProxyOptions{Socket: socket})
	pod := captured(t, server)
	connect(t, pod, of(proxy), 1)
	proxy.LoseListeners("a")
	seen, err := pod.Send(t.Context(), outward())
	if err != nil || seen.Verdict != dataplanetest.Refused {
		t.Errorf("without listeners: %s, %v, want that it is refused", seen, err)
	}
	if !proxy.Serves("a") {
		t.Error("the proxy has noticed")
	}
}

func outward() dataplanetest.Probe {
	return dataplanetest.Probe{Dst: netip.MustParseAddrPort("198.51.100.7:443")}
}

// captured returns a pod whose traffic goes to the proxy that serves it, as pod a.
func captured(t *testing.T, server *zds.Server) *dataplanetest.Pod {
	t.Helper()
	pod, namespace := newPod(t)
	if err := server.Set(workload("a"), namespace); err != nil {
		t.Fatal(err)
	}
	await(t, server, "a")
	capture(t, namespace)
	return pod
}

// drain begins to drain a proxy. The end is that of the time it has.
func drain(t *testing.T, p *Proxy) (end func()) {
	t.Helper()
	deadline, cancel := context.WithCancel(t.Context())
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		p.Drain(deadline)
	}()
	return func() {
		cancel()
		<-drained
	}
}

// older opens a connection from a pod.
func older(t *testing.T, pod *dataplanetest.Pod) *dataplanetest.Connection {
	t.Helper()
	connection, err := pod.Connect(t.Context(), outward())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() }) // the proxy may have cut it off
	return connection
}

// lives tests whether a connection that was captured goes on.
func lives(t *testing.T, c *dataplanetest.Connection, want bool) {
	t.Helper()
	if verdict, err := c.Say(t.Context(), dataplanetest.Opener); err != nil || (verdict == dataplanetest.Accepted) != want {
		t.Errorf("the older connection: %v, %v, want that it lives: %v", verdict, err, want)
	}
}

// TestDrain ends a proxy as its successor serves: older connections live until the deadline.
func TestDrain(t *testing.T) {
	t.Parallel()
	socket := newSocket(t)
	server, _ := agent(t, socket)
	old := start(t, ProxyOptions{Socket: socket})
	pod := captured(t, server)
	connection := older(t, pod)
	end := drain(t, old)
	lives(t, connection, true)
	end()
	if seen, err := pod.Send(t.Context(), outward()); err != nil || seen.Verdict != dataplanetest.Refused {
		t.Errorf("after the drain: %s, %v, want that a new connection is refused", seen, err)
	}
	lives(t, connection, false)
}

// TestDrainBesideSuccessor drains a proxy while another one serves the same pod: the older
// connection lives, the successor takes the new ones, and the agent has one proxy left.
func TestDrainBesideSuccessor(t *testing.T) {
	t.Parallel()
	server, socket, seen := events(t, zds.Options{})
	old := start(t, ProxyOptions{Socket: socket})
	pod := captured(t, server)
	connection := older(t, pod)
	anew := start(t, ProxyOptions{Socket: socket})
	for event := range seen { // until the successor has its snapshot
		if event.Connection == 2 && event.Request.Kind == zds.KindSnapshotSent {
			break
		}
	}
	before := old.Relayed()
	end := drain(t, old)
	for event := range seen { // until the old proxy has left
		if event.Connection == 1 && event.Err != nil {
			break
		}
	}
	for old.Serves("a") {
		runtime.Gosched()
	}
	connect(t, pod, of(anew), 1)
	lives(t, connection, true)
	if got := old.Relayed(); got != before {
		t.Errorf("the old proxy has begun to relay %d connections during its drain", got-before)
	}
	end()
	lives(t, connection, false)
	connect(t, pod, of(anew), 1)
}

// TestTunnelIsForThisPod sends a destination through a tunnel that is another pod's, or a port of
// the proxy itself.
func TestTunnelIsForThisPod(t *testing.T) {
	t.Parallel()
	socket := newSocket(t)
	server, _ := agent(t, socket)
	proxy := start(t, ProxyOptions{Socket: socket})
	pod, namespace := newPod(t)
	if err := server.Set(workload("a"), namespace); err != nil {
		t.Fatal(err)
	}
	await(t, server, "a")
	tunnel := netip.AddrPortFrom(netip.MustParseAddr("10.244.1.10"), uint16(ambient.IstioNumbers().TunnelPort))
	for _, head := range []string{"10.244.1.11:8080", "127.0.0.1:8080", "10.244.1.10:15006", "10.244.1.10:15008", "nonsense", strings.Repeat("1", 100)} {
		before := proxy.Relayed()
		var conn net.Conn
		err := pod.Do(func() (err error) {
			conn, err = new(net.Dialer).DialContext(t.Context(), "tcp", tunnel.String())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintln(conn, head); err != nil {
			t.Fatal(err)
		}
		_, err = io.ReadAll(conn)
		_ = conn.Close() // nothing was written since
		if err == nil || proxy.Relayed() != before {
			t.Errorf("a tunnel for %.20s: %v, %d relayed, want that it is reset", head, err, proxy.Relayed()-before)
		}
	}
}
