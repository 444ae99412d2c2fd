// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/internal/testing/fakecluster"
	"github.com/meshcni/meshcni/repair"
	"github.com/meshcni/meshcni/repair/controller"
)

const patience = 60 * time.Second

// fixture is a controller with a cluster.
type fixture struct {
	*controller.Controller
	cluster  *fakecluster.Cluster
	server   *httptest.Server
	informer cache.SharedIndexInformer
	changed  chan struct{}
	end      func() // before the end of the test; may be called twice

	mu       sync.Mutex
	outcomes []controller.Outcome
}

// options are those of most tests: Istio's mesh and validator, on node a, without limits.
func options(do ...repair.Mode) controller.Options {
	free := repair.Limit{Burst: 1}
	return controller.Options{
		Criteria: repair.Criteria{
			Mesh: sidecar.Mesh{Dialect: sidecar.Istio(), Owner: "istio-cni"}, Node: "a",
			Validators: []repair.Validator{repair.IstioValidator()},
		},
		Policy: repair.Policy{Rules: []repair.Rule{{Do: do}}, Label: repair.IstioLabel()},
		Limits: repair.Limits{Writes: free, Disruptions: free, PerOwner: free, PerPod: free},
		Resync: time.Hour,
	}
}

// start runs a controller until the test ends.
func start(t testing.TB, o controller.Options, pods ...fakecluster.Pod) *fixture {
	t.Helper()
	cluster := fakecluster.New()
	cluster.Put(pods...)
	return startAt(t, cluster, o)
}

func startAt(t testing.TB, cluster *fakecluster.Cluster, o controller.Options) *fixture {
	t.Helper()
	f := &fixture{cluster: cluster, changed: make(chan struct{}, 1)}
	f.server = httptest.NewServer(cluster.Handler())
	client, err := controller.NewClient(&rest.Config{Host: f.server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	o.Cluster = client
	if f.informer, err = client.Informer("a", controller.Selection{}); err != nil {
		t.Fatal(err)
	}
	o.Informer = f.informer
	o.OnOutcome = func(outcome controller.Outcome) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.outcomes = append(f.outcomes, outcome)
	}
	o.OnStatus = func() {
		select {
		case f.changed <- struct{}{}:
		default:
		}
	}
	if f.Controller, err = controller.New(o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { f.informer.RunWithContext(ctx) })
	group.Go(func() {
		if err := f.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	f.end = func() {
		cancel()
		group.Wait()
		cluster.Refuse(http.StatusServiceUnavailable) // ends watches
		f.server.Close()
	}
	t.Cleanup(f.end)
	return f
}

// await waits until the condition holds, and checks it whenever something may have changed.
func (f *fixture) await(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for !condition() {
		select {
		case <-f.changed:
		case <-deadline:
			t.Fatalf("%s: not within %v; status %+v\n%v", what, patience, f.Status(), f.told())
		}
	}
}

func (f *fixture) awaitScan(t testing.TB) {
	t.Helper()
	f.await(t, "scanned", func() bool { return f.Status().Scanned })
}

// awaitDone waits until a mode has had that result that many times.
func (f *fixture) awaitDone(t testing.TB, mode repair.Mode, result controller.Result, times int) {
	t.Helper()
	f.await(t, string(mode)+" "+string(result), func() bool { return f.Status().Done[controller.ModeResult{Mode: mode, Result: result}] >= times })
}

func (f *fixture) told() []controller.Outcome {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.outcomes)
}

// wantEvents checks the events on pods, as reason, pod and a part of the message.
func (f *fixture) wantEvents(t testing.TB, want ...[3]string) {
	t.Helper()
	got := f.cluster.Events()
	if len(got) != len(want) {
		t.Fatalf("%d events, want %d: %+v", len(got), len(want), got)
	}
	slices.SortFunc(got, func(a, b fakecluster.Event) int { return strings.Compare(a.Pod+a.Reason, b.Pod+b.Reason) })
	for i, e := range got {
		if e.Reason != want[i][0] || e.Pod != want[i][1] || !strings.Contains(e.Message, want[i][2]) || e.Component != "cni-repair" ||
			e.PodUID != "uid-"+e.Pod || e.Namespace != "shop" {
			t.Errorf("event %+v, want %q", e, want[i])
		}
	}
}

// pod returns a pod of a ReplicaSet in namespace shop.
func pod(name string, change ...func(*fakecluster.Pod)) fakecluster.Pod {
	p := fakecluster.Pod{Namespace: "shop", Name: name, UID: "uid-" + name, Node: "a", Owner: "ReplicaSet/web"}
	for _, c := range change {
		c(&p)
	}
	return p
}

// validated adds a validator that ended with the code.
func validated(code int32) func(*fakecluster.Pod) {
	return func(p *fakecluster.Pod) { p.Validator = &code }
}

// broken returns a pod whose validator reported "not captured".
func broken(name string) fakecluster.Pod { return pod(name, validated(126)) }
