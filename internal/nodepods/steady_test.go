// SPDX-License-Identifier: Apache-2.0

package nodepods_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/meshcni/meshcni/internal/nodepods"
	"github.com/meshcni/meshcni/internal/testing/fakecluster"
)

// follower runs an informer of the pods of node a.
type follower struct {
	t        *testing.T
	informer cache.SharedIndexInformer
	heard    chan struct{} // has a value after an event
	gone     chan string   // names of pods
	failures atomic.Int64
}

func follow(t *testing.T, url string) *follower {
	t.Helper()
	client, err := nodepods.NewClient(&rest.Config{Host: url, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{t: t, heard: make(chan struct{}, 1), gone: make(chan string, 100)}
	if f.informer, err = nodepods.NewInformer(client, nodepods.Selection{Node: "a"}); err != nil {
		t.Fatal(err)
	}
	err = f.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		cache.DefaultWatchErrorHandler(ctx, r, err)
		f.failures.Add(1)
		f.tell()
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { f.tell() },
		UpdateFunc: func(any, any) { f.tell() },
		DeleteFunc: func(object any) {
			if o, isPod := object.(*nodepods.Object); isPod {
				f.gone <- o.Name
			}
			f.tell()
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f.informer.RunWithContext(ctx) }()
	t.Cleanup(func() { end(); <-done })
	return f
}

func (f *follower) tell() {
	select {
	case f.heard <- struct{}{}:
	default: // the test looks anyway
	}
}

// await waits until the informer knows exactly these pods, as name=label.
func (f *follower) await(ctx context.Context, want ...string) {
	f.t.Helper()
	f.until(ctx, fmt.Sprintf("the pods are %q", want), func() bool {
		var got []string
		for _, object := range f.informer.GetStore().List() {
			if o, isPod := object.(*nodepods.Object); isPod {
				got = append(got, o.Name+"="+o.Labels["version"])
			}
		}
		slices.Sort(got)
		return slices.Equal(got, want)
	})
}

func (f *follower) until(ctx context.Context, what string, is func() bool) {
	f.t.Helper()
	for !is() {
		select {
		case <-f.heard:
		case <-ctx.Done():
			f.t.Fatalf("not in time: %s; the informer knows %v", what, f.informer.GetStore().ListKeys())
		}
	}
}

func pod(name, version string) fakecluster.Pod {
	return fakecluster.Pod{Namespace: "shop", Name: name, UID: name + version, Node: "a", Labels: map[string]string{"version": version}}
}

// TestSteadyInformerAfterFailures has the API server fail again and again, in each way that ends a
// watch. Client-go's own informer takes more than a minute in all: it doubles its pauses.
func TestSteadyInformerAfterFailures(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(f *follower, c *fakecluster.Cluster){
		"refusals": func(f *follower, c *fakecluster.Cluster) {
			before := f.failures.Load()
			c.Refuse(http.StatusServiceUnavailable)
			f.until(f.t.Context(), "a failure is reported", func() bool { return f.failures.Load() > before })
		},
		"expired watches": func(_ *follower, c *fakecluster.Cluster) { c.Expire() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := fakecluster.New()
			server := httptest.NewServer(cluster.Handler())
			t.Cleanup(func() { cluster.Refuse(http.StatusServiceUnavailable); server.Close() })
			cluster.Put(pod("web", "0"))
			f := follow(t, server.URL)
			f.await(t.Context(), "web=0")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for i := range 7 {
				fail(f, cluster)
				cluster.Put(pod("web", fmt.Sprint(i+1)))
				cluster.Refuse(0)
				f.await(ctx, fmt.Sprintf("web=%d", i+1))
			}
		})
	}
}

// TestSteadyInformerAfterAbsence ends the API server's process, as far as connections show, and
// starts it again at the same address.
func TestSteadyInformerAfterAbsence(t *testing.T) {
	t.Parallel()
	cluster := fakecluster.New()
	address := fmt.Sprintf("127.%d.%d.%d:0", 1+rand.N(250), rand.N(250), 1+rand.N(250)) // no other program's port
	server := serve(t, cluster, address)
	address = server.Listener.Addr().String()
	cluster.Put(pod("changed", "1"), pod("gone", "1"), pod("replaced", "1"), pod("same", "1"))
	f := follow(t, server.URL)
	f.await(t.Context(), "changed=1", "gone=1", "replaced=1", "same=1")
	before := f.failures.Load()
	server.CloseClientConnections()
	server.Close()
	f.until(t.Context(), "failures are reported", func() bool { return f.failures.Load() > before+1 })
	cluster.Delete("shop", "gone")
	cluster.Delete("shop", "replaced")
	cluster.Put(pod("changed", "2"), pod("new", "1"), pod("replaced", "2"))
	server = serve(t, cluster, address)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	f.await(t.Context(), "changed=2", "new=1", "replaced=2", "same=1")
	if gone := <-f.gone; gone != "gone" {
		t.Errorf("%s is gone", gone)
	}
	cluster.Delete("shop", "new") // the watch goes on
	f.await(t.Context(), "changed=2", "replaced=2", "same=1")
}

func serve(t *testing.T, cluster *fakecluster.Cluster, address string) *httptest.Server {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(cluster.Handler())
	_ = server.Listener.Close() // nothing was written
	server.Listener = listener
	server.Start()
	return server
}
