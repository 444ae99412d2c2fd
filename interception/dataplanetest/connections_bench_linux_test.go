// SPDX-License-Identifier: Apache-2.0

package dataplanetest_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

// The addresses of a server that its pods connect to: one that no plan below captures, and one that
// all capture except the empty one.
const (
	serverPort = 8080
	batch      = 64 // connections per round
)

var (
	spared   = [4]byte{192, 0, 2, 1}
	captured = [4]byte{203, 0, 113, 1}
)

// BenchmarkConnections opens TCP connections that pass all of a plan's rules and are not captured,
// with more and more excluded prefixes, alternating with a pod whose hooks hold a rule that matches
// nothing. That rule would translate: without any translation, the kernel would not even track
// connections. It reports the time of a connection as a multiple of the time in that pod: the
// median over all rounds, each of which visits every pod.
func BenchmarkConnections(b *testing.B) {
	exclusions := []int{0, 10, 100, 1000}
	for _, backend := range backends(b) {
		b.Run(backend.name, func(b *testing.B) {
			plans := []*interception.Plan{neverMatching(b)}
			for _, n := range exclusions {
				plans = append(plans, excluding(b, n))
			}
			wires := connect(b, backend.dataplane, plans)
			times := make([][]float64, len(wires))
			for round := 0; b.Loop(); round++ {
				for i := range wires {
					at := (round + i) % len(wires) // the first finds the others' data in the caches
					times[at] = append(times[at], float64(wires[at].dial(b)))
				}
			}
			b.ReportMetric(float64(batch*time.Second)/median(times[0]), "empty-conn/s")
			for i, n := range exclusions {
				b.ReportMetric(ratio(times[i+1], times[0]), fmt.Sprintf("%d-excluded/empty", n))
			}
			b.ReportMetric(ratio(times[4], times[2]), "1000-excluded/10-excluded")
		})
	}
}

// neverMatching returns a plan with both hooks of the default plan, each with a rule that matches
// no packet of the benchmark.
func neverMatching(b *testing.B) *interception.Plan {
	b.Helper()
	plan, err := interception.Build("istio-cni", func(p *interception.Builder) {
		nobody := interception.Match{L4: interception.TCP().To(interception.Ports(1))}
		for name, hook := range map[interception.ChainName]interception.Hook{"inbound": interception.Prerouting, "outbound": interception.Output} {
			c := p.NAT(name)
			c.Entry(hook, nobody, "nobody goes there")
			c.Do(interception.RuleID(name)+".nobody", nobody, interception.RedirectTo{Port: 1}, "nobody goes there")
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	return plan
}

// excluding returns the default plan, but captures one network only, and excludes n others.
func excluding(b *testing.B, n int) *interception.Plan {
	b.Helper()
	return sidecarPlan(b, interception.Facts{}, func(r *sidecar.Redirect) {
		r.Outbound.Include = interception.Prefixes(netip.PrefixFrom(netip.AddrFrom4(captured), 24).Masked())
		r.Outbound.Exclude = scattered(n)
	})
}

// wire is a pod and its server, which listens.
type wire struct {
	pod, server host
	listener    int
}

// connect creates a pod for each plan, and checks that each plan but the first has an effect.
func connect(b *testing.B, d interception.Dataplane, plans []*interception.Plan) []*wire {
	b.Helper()
	wires := make([]*wire, len(plans))
	for i := range plans {
		wires[i] = &wire{pod: newHost(b), server: newHost(b)}
		b.Cleanup(func() { wires[i].pod.close(b); wires[i].server.close(b) })
	}
	failed := make([]error, len(plans))
	var group sync.WaitGroup
	for i, w := range wires { // at once: each may wait a second for its carrier
		group.Go(func() { failed[i] = w.bringUp(b) })
	}
	group.Wait()
	if err := errors.Join(failed...); err != nil {
		b.Fatal(err)
	}
	for i, w := range wires {
		b.Cleanup(func() { _ = unix.Close(w.listener) })
		w.pod.apply(b, d, plans[i])
		var want error
		if i > 0 {
			want = unix.ECONNREFUSED // by the pod, where no proxy listens
		}
		if err := w.pod.namespace.Do(func() error { return open(captured) }); !errors.Is(err, want) {
			b.Fatalf("plan %d: a connection that it captures, the first plan excepted: %v, want %v", i, err, want)
		}
		if i == 0 {
			w.accept(b, 1)
		}
	}
	return wires
}

// bringUp connects the two ends, gives them their addresses, and listens.
func (w *wire) bringUp(b *testing.B) error {
	b.Helper()
	ends := [2]sandbox.End{{Namespace: w.pod.namespace, Name: "eth0"}, {Namespace: w.server.namespace, Name: "eth0"}}
	if err := sandbox.Connect(b.Context(), ends[0], ends[1]); err != nil {
		return err
	}
	for _, network := range [][4]byte{spared, captured} {
		address := netip.AddrFrom4(network)
		if err := errors.Join(
			w.server.namespace.AddAddress(b.Context(), "eth0", netip.PrefixFrom(address, 24)),
			w.pod.namespace.AddAddress(b.Context(), "eth0", netip.PrefixFrom(address.Next(), 24)),
		); err != nil {
			return err
		}
	}
	return w.server.namespace.Do(func() (err error) {
		if w.listener, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return errors.Join(unix.Bind(w.listener, &unix.SockaddrInet4{Port: serverPort}), unix.Listen(w.listener, 2*batch))
	})
}

// dial opens and resets some connections, and returns the time that this takes, without the
// server's accepting.
func (w *wire) dial(b *testing.B) time.Duration {
	b.Helper()
	var elapsed time.Duration
	if err := w.pod.namespace.Do(func() error {
		start := time.Now()
		for range batch {
			if err := open(spared); err != nil {
				return err
			}
		}
		elapsed = time.Since(start)
		return nil
	}); err != nil {
		b.Fatalf("connect: %v", err)
	}
	w.accept(b, batch)
	return elapsed
}

// open opens and resets a connection, in the namespace of the caller's thread.
func open(address [4]byte) (err error) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Close(socket)) }()
	// A reset frees its port at once.
	if err := unix.SetsockoptLinger(socket, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return err
	}
	return unix.Connect(socket, &unix.SockaddrInet4{Addr: address, Port: serverPort})
}

// accept accepts n connections from the server's queue.
func (w *wire) accept(b *testing.B, n int) {
	b.Helper()
	for range n {
		socket, _, err := unix.Accept4(w.listener, unix.SOCK_CLOEXEC)
		if err != nil {
			b.Fatalf("accept: %v", err)
		}
		_ = unix.Close(socket)
	}
}

// ratio returns the median of the rounds' ratios: a temporary slowdown of the machine affects both
// sides.
func ratio(times, to []float64) float64 {
	ratios := make([]float64, len(times))
	for i := range times {
		ratios[i] = times[i] / to[i]
	}
	return median(ratios)
}

func median(values []float64) float64 {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}
