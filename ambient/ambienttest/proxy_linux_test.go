// SPDX-License-Identifier: Apache-2.0

package ambienttest

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/zds"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/nftables"
)

// agent returns a server for proxies that serves the pods of a snapshot until the test ends, or end
// is called.
func agent(t *testing.T, socket string, snapshot ...zds.Workload) (server *zds.Server, end func()) {
	t.Helper()
	server, err := zds.Listen(t.Context(), socket, zds.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range snapshot { // whose namespaces are not known here
		if err := server.Set(w, nil); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { server.Serve(ctx) })
	end = func() {
		cancel()
		serving.Wait()
	}
	t.Cleanup(end)
	return server, end
}

func newSocket(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "z")
}

func start(t *testing.T, o ProxyOptions) *Proxy {
	t.Helper()
	o.Numbers = ambient.IstioNumbers()
	proxy, err := StartProxy(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	return proxy
}

// newPod returns a pod with an application, and its open namespace.
func newPod(t *testing.T) (*dataplanetest.Pod, *interception.Netns) {
	t.Helper()
	pod := dataplanetest.NewPod(t, dataplanetest.PodOptions{Ports: []uint16{8080}})
	namespace, err := interception.OpenNetns(pod.Path(), interception.NetnsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = namespace.Close() }) // nothing was written
	return pod, namespace
}

func workload(uid string) zds.Workload {
	return zds.Workload{UID: uid, Name: "pod-" + uid, Namespace: "shop", ServiceAccount: "account"}
}

func await(t *testing.T, server *zds.Server, uid string) {
	t.Helper()
	if err := server.Await(t.Context(), uid); err != nil {
		t.Fatal(err)
	}
}

// TestPodIsServed enrols a pod, and withdraws it again, with real connections at each stage.
func TestPodIsServed(t *testing.T) {
	t.Parallel()
	socket := newSocket(t)
	server, _ := agent(t, socket)
	proxy := start(t, ProxyOptions{Socket: socket})
	pod, namespace := newPod(t)
	if err := server.Set(workload("a"), namespace); err != nil {
		t.Fatal(err)
	}
	await(t, server, "a")
	plan, err := ambient.PodPlan(ambient.DefaultOverrides(false), ambient.IstioNumbers(), interception.Facts{IPv6: true, LoopbackIPv6: true}, "test-ambient")
	if err != nil {
		t.Fatal(err)
	}
	dataplane, err := nftables.New(nftables.Options{})
	if err != nil {
		t.Fatal(err)
	}
	connect(t, pod, proxy, 0) // direct
	if err := dataplane.Apply(t.Context(), namespace, plan); err != nil {
		t.Fatal(err)
	}
	connect(t, pod, proxy, 1)
	if err := dataplane.Apply(t.Context(), namespace, plan.Draining()); err != nil {
		t.Fatal(err)
	}
	connect(t, pod, proxy, 0)
	server.Delete("a")
	await(t, server, "a")
	if proxy.Serves("a") {
		t.Error("the proxy serves a pod that it was told to forget")
	}
	if err := dataplane.Remove(t.Context(), namespace, "test-ambient"); err != nil {
		t.Fatal(err)
	}
	connect(t, pod, proxy, 0)
}

// connect opens a connection of each direction and family, and tests how many the proxy relays and
// whether each end sees the other's address.
func connect(t *testing.T, pod *dataplanetest.Pod, proxy *Proxy, relayed int) {
	t.Helper()
	for _, probe := range []dataplanetest.Probe{
		{From: dataplanetest.Elsewhere, Src: netip.MustParseAddr("192.0.2.9"), Dst: netip.MustParseAddrPort("10.244.1.10:8080")},
		{From: dataplanetest.Elsewhere, Src: netip.MustParseAddr("2001:db8::9"), Dst: netip.MustParseAddrPort("[fd00:10:244:1::a]:8080")},
		{Dst: netip.MustParseAddrPort("198.51.100.7:443")},
		{Dst: netip.MustParseAddrPort("[2001:db8:7::7]:443")},
	} {
		before := proxy.Relayed()
		seen, err := pod.Send(t.Context(), probe)
		if err != nil || seen.Verdict != dataplanetest.Accepted || !seen.Answered || seen.Port != probe.Dst.Port() {
			t.Errorf("%s: %s, %v, want that it is accepted there and answered", probe, seen, err)
		}
		if probe.Src.IsValid() && seen.Peer.Addr() != probe.Src {
			t.Errorf("%s: the application sees the client as %s", probe, seen.Peer)
		}
		if got := proxy.Relayed() - before; got != relayed {
			t.Errorf("%s: the proxy has relayed %d connections, want %d", probe, got, relayed)
		}
	}
}

// TestHandover replaces the proxy by another while the pod stays captured.
func TestHandover(t *testing.T) {
	t.Parallel()
	socket := newSocket(t)
	server, _ := agent(t, socket)
	old := start(t, ProxyOptions{Socket: socket})
	pod, namespace := newPod(t)
	if err := server.Set(workload("a"), namespace); err != nil {
		t.Fatal(err)
	}
	await(t, server, "a")
	capture(t, namespace)
	connect(t, pod, old, 1)
	anew := start(t, ProxyOptions{Socket: socket})
	for !anew.Serves("a") { // both listen on the same ports
		if err := server.Set(workload("a"), namespace); err != nil {
			t.Fatal(err)
		}
		await(t, server, "a")
	}
	if err := old.Close(); err != nil {
		t.Error(err)
	}
	connect(t, pod, anew, 1)
}

// capture applies the plan of a pod that asks for nothing.
func capture(t *testing.T, namespace *interception.Netns) {
	t.Helper()
	plan, err := ambient.PodPlan(ambient.DefaultOverrides(false), ambient.IstioNumbers(), interception.Facts{IPv6: true, LoopbackIPv6: true}, "test-ambient")
	if err != nil {
		t.Fatal(err)
	}
	dataplane, err := nftables.New(nftables.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := dataplane.Apply(t.Context(), namespace, plan); err != nil {
		t.Fatal(err)
	}
}

// TestSnapshotEndsOtherPods deletes a pod while the proxy is away.
func TestSnapshotEndsOtherPods(t *testing.T) {
	t.Parallel()
	socket := newSocket(t)
	first, end := agent(t, socket)
	proxy := start(t, ProxyOptions{Socket: socket})
	_, a := newPod(t)
	_, b := newPod(t)
	for uid, namespace := range map[string]*interception.Netns{"a": a, "b": b} {
		if err := first.Set(workload(uid), namespace); err != nil {
			t.Fatal(err)
		}
		await(t, first, uid)
	}
	end()
	if !proxy.Serves("a") || !proxy.Serves("b") {
		t.Error("the proxy serves its pods no more while the agent is away")
	}
	second, _ := agent(t, socket, workload("b"))
	await(t, second, "b")
	if err := second.Set(workload("c"), a); err != nil { // in the snapshot or after it
		t.Fatal(err)
	}
	await(t, second, "c")
	if proxy.Serves("a") || !proxy.Serves("b") || !proxy.Serves("c") {
		t.Errorf("it serves a: %v, b: %v, c: %v, want b and c", proxy.Serves("a"), proxy.Serves("b"), proxy.Serves("c"))
	}
}

func TestRefusal(t *testing.T) {
	t.Parallel()
	socket := newSocket(t)
	server, _ := agent(t, socket)
	proxy := start(t, ProxyOptions{Socket: socket, Refuse: func(w zds.Workload) string {
		return map[string]string{"b": "not b"}[w.UID]
	}})
	_, a := newPod(t)
	_, b := newPod(t)
	for uid, namespace := range map[string]*interception.Netns{"a": a, "b": b} {
		if err := server.Set(workload(uid), namespace); err != nil {
			t.Fatal(err)
		}
	}
	await(t, server, "a")
	for {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		err := server.Await(ended, "b")
		if wrong, is := errors.AsType[*zds.AwaitError](err); is && wrong.Text == "not b" {
			break
		}
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
	if proxy.Serves("b") {
		t.Error("the proxy serves a pod that it has refused")
	}
}
