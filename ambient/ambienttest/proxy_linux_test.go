// SPDX-License-Identifier: Apache-2.0

package ambienttest

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

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
	pod := dataplanetest.NewPod(t, dataplanetest.PodOptions{Ports: []uint16{8080}, RelayedWithin: 20 * time.Second})
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

// running starts the proxy of a test of behaviour: that of the run, or the command.
func running(t *testing.T, socket, command string) Instance {
	t.Helper()
	instance, err := Start(t.Context(), StartOptions{
		ProxyOptions: ProxyOptions{Socket: socket, Numbers: ambient.IstioNumbers()}, Command: command, Workloads: workloads(), Output: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := instance.Close(); err != nil {
			t.Error(err)
		}
	})
	return instance
}

// workloads are the pods of these tests as the control plane knows them.
func workloads() (all []Workload) {
	for _, uid := range []string{"a", "b", "c"} {
		w := workload(uid)
		all = append(all, Workload{Name: w.Name, Namespace: w.Namespace, ServiceAccount: w.ServiceAccount})
	}
	return all
}

// eachProxy runs a test of behaviour with the proxy of the run (the stand-in in this process, or
// the command that MESHCNI_ZTUNNEL names), and with the stand-in as a program.
func eachProxy(t *testing.T, test func(t *testing.T, command string)) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "stand-in-proxy")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", program, "github.com/meshcni/meshcni/examples/stand-in-proxy")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", build, err, output)
	}
	ofRun := os.Getenv(Variable) //nolint:forbidigo // a run of tests has no caller that could pass it
	for name, command := range map[string]string{"of the run": ofRun, "a command": program} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, command)
		})
	}
}

// watch returns a witness in a pod's namespace.
func watch(t *testing.T, in *interception.Netns) *Witness {
	t.Helper()
	witness, err := NewWitness(in, ambient.IstioNumbers())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := witness.Close(); err != nil {
			t.Error(err)
		}
	})
	return witness
}

// awaitListening waits until a proxy listens in the namespace, or none does: one that is told to
// end closes its listeners before or after it acknowledges that.
func awaitListening(t *testing.T, w *Witness, want bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		listening, err := w.Listening()
		if err != nil {
			t.Fatal(err)
		}
		if listening == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("a proxy listens: %t, want %t", listening, want)
		}
	}
}

// TestPodIsServed enrols a pod, and withdraws it again, with real connections at each stage.
func TestPodIsServed(t *testing.T) {
	t.Parallel()
	eachProxy(t, podIsServed)
}

func podIsServed(t *testing.T, command string) {
	t.Helper()
	socket := newSocket(t)
	server, _ := agent(t, socket)
	running(t, socket, command)
	pod, namespace := newPod(t)
	witness := watch(t, namespace)
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
	awaitListening(t, witness, true)
	connect(t, pod, witness.Relayed, 0) // direct
	for _, stage := range []struct {
		plan    *interception.Plan
		relayed int
	}{{plan, 1}, {plan.Draining(), 0}} {
		if err := dataplane.Apply(t.Context(), namespace, stage.plan); err != nil {
			t.Fatal(err)
		}
		connect(t, pod, witness.Relayed, stage.relayed)
	}
	server.Delete("a")
	await(t, server, "a")
	awaitListening(t, witness, false)
	if err := dataplane.Remove(t.Context(), namespace, "test-ambient"); err != nil {
		t.Fatal(err)
	}
	connect(t, pod, witness.Relayed, 0)
}

// connect opens a connection of each direction and family, and tests how many the proxy relays and
// whether each end sees the other's address.
func connect(t *testing.T, pod *dataplanetest.Pod, count func() (int, error), relayed int) {
	t.Helper()
	counted := func() int {
		t.Helper()
		counted, err := count()
		if err != nil {
			t.Fatal(err)
		}
		return counted
	}
	// The proxy keeps the client's address and has a port of its own. Of one client, that could be the
	// port of an earlier connection, for which the kernel would take it.
	client := byte(1 + rand.IntN(250))
	for _, probe := range []dataplanetest.Probe{
		{From: dataplanetest.Elsewhere, Src: netip.AddrFrom4([4]byte{192, 0, 2, client}), Dst: netip.MustParseAddrPort("10.244.1.10:8080")},
		{From: dataplanetest.Elsewhere, Src: netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: client}), Dst: netip.MustParseAddrPort("[fd00:10:244:1::a]:8080")},
		{Dst: netip.MustParseAddrPort("198.51.100.7:443")},
		{Dst: netip.MustParseAddrPort("[2001:db8:7::7]:443")},
	} {
		before := counted()
		seen, err := pod.Send(t.Context(), probe)
		if err != nil || seen.Verdict != dataplanetest.Accepted || !seen.Answered || seen.Port != probe.Dst.Port() {
			t.Errorf("%s: %s, %v, want that it is accepted there and answered", probe, seen, err)
		}
		if probe.Src.IsValid() && seen.Peer.Addr() != probe.Src {
			t.Errorf("%s: the application sees the client as %s", probe, seen.Peer)
		}
		if got := counted() - before; got != relayed {
			t.Errorf("%s: the proxy has relayed %d connections, want %d", probe, got, relayed)
		}
	}
}

// of returns what connect asks of one stand-in of this process.
func of(p *Proxy) func() (int, error) { return func() (int, error) { return p.Relayed(), nil } }

// TestHandover replaces the proxy by another while the pod stays captured.
func TestHandover(t *testing.T) {
	t.Parallel()
	eachProxy(t, handover)
}

func handover(t *testing.T, command string) {
	t.Helper()
	server, socket, seen := events(t, zds.Options{})
	old := running(t, socket, command)
	pod, namespace := newPod(t)
	witness := watch(t, namespace)
	if err := server.Set(workload("a"), namespace); err != nil {
		t.Fatal(err)
	}
	await(t, server, "a")
	capture(t, namespace)
	connect(t, pod, witness.Relayed, 1)
	running(t, socket, command)
	for event := range seen { // until the successor has its snapshot: both listen on the same ports
		if event.Connection == 2 && event.Request.Kind == zds.KindSnapshotSent {
			break
		}
	}
	connect(t, pod, witness.Relayed, 1)
	if err := old.Close(); err != nil {
		t.Error(err)
	}
	connect(t, pod, witness.Relayed, 1)
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
	eachProxy(t, snapshotEndsOtherPods)
}

func snapshotEndsOtherPods(t *testing.T, command string) {
	t.Helper()
	socket := newSocket(t)
	first, end := agent(t, socket)
	running(t, socket, command)
	namespaces, witnesses := map[string]*interception.Netns{}, map[string]*Witness{}
	for _, uid := range []string{"a", "b", "c"} {
		_, namespaces[uid] = newPod(t)
		witnesses[uid] = watch(t, namespaces[uid])
	}
	for _, uid := range []string{"a", "b"} {
		if err := first.Set(workload(uid), namespaces[uid]); err != nil {
			t.Fatal(err)
		}
		await(t, first, uid)
	}
	end()
	awaitListening(t, witnesses["a"], true) // while the agent is away
	awaitListening(t, witnesses["b"], true)
	second, _ := agent(t, socket, workload("b"))
	await(t, second, "b")
	if err := second.Set(workload("c"), namespaces["c"]); err != nil { // in the snapshot or after it
		t.Fatal(err)
	}
	await(t, second, "c")
	awaitListening(t, witnesses["a"], false)
	awaitListening(t, witnesses["b"], true)
	awaitListening(t, witnesses["c"], true)
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
