// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/controller"
	"github.com/meshcni/meshcni/internal/testing/fakecluster"
)

// patience is how long a test waits for something that has to happen.
const patience = 60 * time.Second

// fixture is a controller with a cluster.
type fixture struct {
	*controller.Controller
	cluster *fakecluster.Cluster
	errors  chan error // what OnError got; what does not fit is dropped
	end     func()     // before the end of the test; may be called twice
}

// start runs a controller for the pods of node a until the test ends.
func start(t *testing.T, cluster *fakecluster.Cluster, change ...func(*controller.Options)) *fixture {
	t.Helper()
	server := httptest.NewServer(cluster.Handler())
	f := &fixture{cluster: cluster, errors: make(chan error, 100)}
	config := &rest.Config{Host: server.URL, QPS: -1}
	pods, err := controller.NewInformer(config, "a", controller.Names(ambient.IstioPolicy(), ambient.Istio())...)
	if err != nil {
		t.Fatal(err)
	}
	o := controller.Options{Config: config, Pods: pods, Annotation: ambient.Istio().Status, OnError: func(err error) {
		select {
		case f.errors <- err:
		default:
		}
	}}
	for _, c := range change {
		c(&o)
	}
	if f.Controller, err = controller.New(o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { pods.RunWithContext(ctx) })
	group.Go(func() {
		if err := f.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	f.end = func() {
		cancel()
		group.Wait()
		cluster.Refuse(http.StatusServiceUnavailable) // ends watches
		server.Close()
	}
	t.Cleanup(f.end)
	return f
}

// agent is what an agent knows that reads a controller.
type agent struct {
	*fixture
	pods       map[string]ambient.Pod // by UID
	namespaces map[string]map[string]string
	gone       []string
	complete   bool
	changes    int
}

func read(f *fixture) *agent {
	return &agent{fixture: f, pods: map[string]ambient.Pod{}, namespaces: map[string]map[string]string{}}
}

// next takes over one change, and checks that it keeps the order of a feed.
func (a *agent) next(t *testing.T) ambient.Change {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	change, err := a.Next(ctx)
	if err != nil {
		t.Fatalf("no news, and knows %+v: %v", a, err)
	}
	a.changes++
	for _, n := range change.Namespaces {
		a.namespaces[n.Name] = n.Labels
	}
	for _, p := range change.Pods {
		if _, known := a.namespaces[p.Namespace]; !known {
			t.Errorf("told of pod %s before its namespace", p.Name)
		}
		a.pods[p.UID] = p
	}
	for _, uid := range change.Gone {
		if _, known := a.pods[uid]; !known {
			t.Errorf("told that %s is gone, which was not told of", uid)
		}
		delete(a.pods, uid)
		a.gone = append(a.gone, uid)
	}
	if change.Complete && a.complete {
		t.Error("told twice that this was all")
	}
	a.complete = a.complete || change.Complete
	return change
}

// await takes over changes until a condition holds.
func (a *agent) await(t *testing.T, condition func() bool) {
	t.Helper()
	for !condition() {
		a.next(t)
	}
}

// wantNoNews fails if there is news. It has no way to see that there never will be: it is for what
// the controller has noticed already.
func (a *agent) wantNoNews(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if change, err := a.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %+v, %v", change, err)
	}
}

func (a *agent) uids() []string {
	var all []string
	for uid := range a.pods {
		all = append(all, uid)
	}
	slices.Sort(all)
	return all
}

// awaitError waits until OnError got an error with the text.
func (f *fixture) awaitError(t *testing.T, text string) {
	t.Helper()
	for deadline := time.After(patience); ; {
		select {
		case err := <-f.errors:
			if strings.Contains(err.Error(), text) {
				return
			}
		case <-deadline:
			t.Fatalf("no error with %q", text)
		}
	}
}

// shop returns a cluster with a namespace and the pods.
func shop(pods ...fakecluster.Pod) *fakecluster.Cluster {
	cluster := fakecluster.New()
	cluster.PutNamespace("shop", map[string]string{"istio.io/dataplane-mode": "ambient"})
	cluster.Put(pods...)
	return cluster
}

// pod returns a pod of namespace shop.
func pod(name string, change ...func(*fakecluster.Pod)) fakecluster.Pod {
	p := fakecluster.Pod{Namespace: "shop", Name: name, UID: "uid-" + name, Node: "a"}
	for _, c := range change {
		c(&p)
	}
	return p
}

// renewed makes it a later pod of the same name.
func renewed(p *fakecluster.Pod) { p.UID = "later" }

func phase(phase string) func(*fakecluster.Pod) { return func(p *fakecluster.Pod) { p.Phase = phase } }

func addresses(addresses ...string) func(*fakecluster.Pod) {
	return func(p *fakecluster.Pod) { p.Addresses = addresses }
}
