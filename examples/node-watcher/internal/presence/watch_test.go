// SPDX-License-Identifier: Apache-2.0

package presence_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/meshcni/meshcni/examples/node-watcher/internal/presence"
	"github.com/meshcni/meshcni/internal/testing/fakecluster"
)

const patience = 60 * time.Second

// fixture watches a ConfigMap of a cluster.
type fixture struct {
	cluster *fakecluster.Cluster
	told    chan bool
	mu      sync.Mutex
	log     bytes.Buffer
	logged  chan struct{}
}

// Write receives the log.
func (f *fixture) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case f.logged <- struct{}{}:
	default:
	}
	return f.log.Write(p)
}

func start(t *testing.T, prepare func(*fakecluster.Cluster)) *fixture {
	t.Helper()
	return startThrough(t, prepare, func(cluster http.Handler) http.Handler { return cluster })
}

// startThrough passes requests through a handler.
func startThrough(t *testing.T, prepare func(*fakecluster.Cluster), before func(http.Handler) http.Handler) *fixture {
	t.Helper()
	f := &fixture{cluster: fakecluster.New(), told: make(chan bool, 100), logged: make(chan struct{}, 100)}
	prepare(f.cluster)
	server := httptest.NewServer(before(f.cluster.Handler()))
	t.Cleanup(func() { f.cluster.Refuse(http.StatusServiceUnavailable); server.Close() })
	w, err := presence.New(presence.Options{
		Config: &rest.Config{Host: server.URL}, Object: "mesh/installed", Log: slog.New(slog.NewTextHandler(f, nil)),
		Observe: func(there bool) { f.told <- there },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return f
}

// want waits for the next reports.
func (f *fixture) want(t *testing.T, words ...bool) {
	t.Helper()
	for _, word := range words {
		select {
		case got := <-f.told:
			if got != word {
				t.Fatalf("told %v, want %v", got, word)
			}
		case <-time.After(patience):
			t.Fatalf("nothing was told within %v, want %v", patience, word)
		}
	}
}

func installed(c *fakecluster.Cluster) { c.PutConfigMap("mesh", "installed") }

func TestWatch(t *testing.T) {
	t.Parallel()
	f := start(t, installed)
	f.want(t, true)
	f.cluster.PutConfigMap("mesh", "another")
	f.cluster.DeleteConfigMap("mesh", "another")
	f.cluster.DeleteConfigMap("mesh", "installed")
	f.want(t, false)
	f.cluster.PutConfigMap("mesh", "installed")
	f.want(t, true)
	if watches := f.cluster.ConfigMapWatches(); watches != 1 {
		t.Errorf("%d watches", watches)
	}
}

// TestNeverThere: the object never exists, as with manifests that lack it.
func TestNeverThere(t *testing.T) {
	t.Parallel()
	f := start(t, func(*fakecluster.Cluster) {})
	f.want(t, false)
	f.cluster.PutConfigMap("mesh", "installed")
	f.want(t, true)
}

// TestRoleAndAccountGoFirst: an open watch reports the object's end, although the API server would
// refuse a new one.
func TestRoleAndAccountGoFirst(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden} {
		f := start(t, installed)
		f.want(t, true)
		f.cluster.Refuse(status)
		f.cluster.DeleteConfigMap("mesh", "installed")
		f.want(t, false)
		f.cluster.PutConfigMap("mesh", "installed") // replaces all
		f.want(t, true)
	}
}

// TestRemovedWhileNobodyWatched: the list of the next watch shows the removal.
func TestRemovedWhileNobodyWatched(t *testing.T) {
	t.Parallel()
	f := start(t, installed)
	f.want(t, true)
	f.cluster.Refuse(http.StatusServiceUnavailable)
	f.cluster.DeleteConfigMap("mesh", "installed")
	f.cluster.Refuse(0)
	f.want(t, false)
}

// TestForbidden: a refused watch is logged once, and nothing is reported about the object.
func TestForbidden(t *testing.T) {
	t.Parallel()
	f := start(t, func(c *fakecluster.Cluster) { installed(c); c.Refuse(http.StatusForbidden) })
	select {
	case <-f.logged:
	case <-time.After(patience):
		t.Fatal("nothing is logged")
	}
	f.cluster.Refuse(0)
	f.want(t, true)
	f.mu.Lock()
	defer f.mu.Unlock()
	if text := f.log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "Forbidden") || !strings.Contains(text, "mesh/installed") {
		t.Errorf("log:\n%s", text)
	}
}

// TestNoStreamedLists: an API server that does not stream lists is listed instead, and no failure
// is logged.
func TestNoStreamedLists(t *testing.T) {
	t.Parallel()
	const declined = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422,"message":"ListOptions.meta.k8s.io \"\" ` +
		`is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"}`
	asked := make(chan struct{}, 100)
	f := startThrough(t, installed, func(cluster http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !r.URL.Query().Has("sendInitialEvents") {
				cluster.ServeHTTP(w, r)
				return
			}
			asked <- struct{}{}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w, declined)
		})
	})
	f.want(t, true)
	<-asked
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.log.Len() > 0 {
		t.Errorf("log:\n%s", &f.log)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for object, host := range map[string]string{"": "http://a", "installed": "http://a", "/installed": "http://a", "mesh/": "http://a", "mesh/installed": "nothing://%"} {
		if _, err := presence.New(presence.Options{Config: &rest.Config{Host: host}, Object: object}); err == nil {
			t.Errorf("%q at %q: no error", object, host)
		}
	}
}

func Example() {
	cluster := fakecluster.New()
	cluster.PutConfigMap("mesh", "installed")
	server := httptest.NewServer(cluster.Handler())
	defer server.Close()
	defer cluster.Refuse(http.StatusServiceUnavailable)
	ctx, end := context.WithCancel(context.Background())
	defer end()
	told := make(chan bool)
	w, err := presence.New(presence.Options{
		Config: &rest.Config{Host: server.URL}, Object: "mesh/installed", Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Observe: func(there bool) { told <- there },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	go w.Run(ctx)
	fmt.Println(<-told)
	cluster.DeleteConfigMap("mesh", "installed")
	fmt.Println(<-told)
	// Output:
	// true
	// false
}
