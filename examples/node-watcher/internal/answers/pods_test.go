// SPDX-License-Identifier: Apache-2.0

package answers

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshcni/meshcni/examples/internal/istiomesh"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/internal/nodepods"
	"github.com/meshcni/meshcni/internal/testing/fakecluster"
)

const patience = 60 * time.Second

// fixture watches a cluster.
type fixture struct {
	*Pods
	cluster  *fakecluster.Cluster
	server   *httptest.Server
	statuses chan podsource.AgentStatus
	ended    chan error
	later    atomic.Int64 // nanoseconds by which the clock is ahead
	log      *lines
	told     chan news
}

// news is what OnPod was called with.
type news struct {
	ref podsource.Ref
	pod *interception.Pod
}

func newFixture(t *testing.T, pods ...fakecluster.Pod) *fixture {
	t.Helper()
	f := &fixture{cluster: fakecluster.New(), statuses: make(chan podsource.AgentStatus, 100), ended: make(chan error, 1)}
	f.cluster.Put(pods...)
	f.server = httptest.NewServer(f.cluster.Handler())
	t.Cleanup(func() { f.cluster.Refuse(http.StatusServiceUnavailable); f.server.Close() })
	f.start(t, Server{URL: f.server.URL})
	return f
}

func (f *fixture) start(t *testing.T, server Server) {
	t.Helper()
	var err error
	f.log, f.told = &lines{}, make(chan news, 100)
	f.Pods, err = New(Options{
		Server: server, Node: "a", Version: "v1", Log: slog.New(slog.NewTextHandler(f.log, nil)),
		OnStatus: func(s podsource.AgentStatus) { f.statuses <- s },
		OnPod:    func(ref podsource.Ref, pod *interception.Pod) { f.told <- news{ref, pod} },
		Now:      func() time.Time { return time.Now().Add(time.Duration(f.later.Load())) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { f.ended <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-f.ended; err != nil {
			t.Errorf("ended with %v", err)
		}
	})
}

// waitStatus waits until the status matches.
func (f *fixture) waitStatus(t *testing.T, ready bool, reason string) {
	t.Helper()
	for deadline := time.After(patience); ; {
		select {
		case status := <-f.statuses:
			if status.Ready == ready && strings.Contains(status.Reason, reason) {
				return
			}
		case <-deadline:
			t.Fatalf("not %v %q within %v", ready, reason, patience)
		}
	}
}

// waitPod waits until the answer matches.
func (f *fixture) waitPod(t *testing.T, name string, want error, matches func(interception.Pod) bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		pod, err := f.Pod(t.Context(), podsource.Ref{Namespace: "shop", Name: name})
		if errors.Is(err, want) && (err != nil || matches(pod)) {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%s: got %+v, %v", name, pod, err)
		case <-time.After(time.Millisecond): // an informer does not signal that it has looked
		}
	}
}

func pods(node string, names ...string) []fakecluster.Pod {
	all := make([]fakecluster.Pod, len(names))
	for i, name := range names {
		all[i] = fakecluster.Pod{Namespace: "shop", Name: name, UID: "uid-" + name, Node: node}
	}
	return all
}

func TestPods(t *testing.T) {
	t.Parallel()
	f := newFixture(t, append(pods("a", "web-0", "web-1"), pods("b", "elsewhere")...)...)
	f.waitStatus(t, true, "")
	pod, err := f.Pod(t.Context(), podsource.Ref{Namespace: "shop", Name: "web-0"})
	proxy, found := pod.Container("istio-proxy")
	if err != nil || pod.UID != "uid-web-0" || pod.Labels["app"] != "web-0" || !found || proxy.Env["ISTIO_META_DNS_CAPTURE"] != "true" ||
		proxy.RunAsUser == nil || *proxy.RunAsUser != 1337 || pod.Annotations["sidecar.istio.io/status"] == "" {
		t.Errorf("got %+v, %v", pod, err)
	}
	decision := istiomesh.Mesh().Decide(pod)
	if !decision.Capture {
		t.Errorf("decided %v", decision)
	}
	f.waitPod(t, "elsewhere", podsource.ErrNotFound, nil)
	f.cluster.Put(pods("a", "web-2")...)
	f.waitPod(t, "web-2", nil, func(interception.Pod) bool { return true })
	f.cluster.Put(fakecluster.Pod{Namespace: "shop", Name: "web-2", UID: "another", Node: "a"})
	f.waitPod(t, "web-2", nil, func(p interception.Pod) bool { return p.UID == "another" })
	f.cluster.Delete("shop", "web-2")
	f.waitPod(t, "web-2", podsource.ErrNotFound, nil)
	if status, err := f.Status(t.Context()); err != nil || !status.Ready || status.Reason != "" || status.Version != "v1" {
		t.Errorf("got %+v, %v", status, err)
	}
}

// TestServerThatIsAway: the API server is unreachable at first, then reachable, then unreachable
// again.
func TestServerThatIsAway(t *testing.T) {
	t.Parallel()
	f := &fixture{cluster: fakecluster.New(), statuses: make(chan podsource.AgentStatus, 100), ended: make(chan error, 1)}
	f.cluster.Put(pods("a", "web-0")...)
	f.cluster.Refuse(http.StatusServiceUnavailable)
	f.server = httptest.NewServer(f.cluster.Handler())
	t.Cleanup(func() { f.cluster.Refuse(http.StatusServiceUnavailable); f.server.Close() })
	f.start(t, Server{URL: f.server.URL})
	f.waitStatus(t, false, "are being listed")
	f.waitStatus(t, false, "doesn't answer about the pods of node a")
	f.waitPod(t, "web-0", podsource.ErrNotReady, nil)
	f.cluster.Refuse(0)
	f.waitStatus(t, true, "")
	f.waitPod(t, "web-0", nil, func(interception.Pod) bool { return true })

	f.cluster.Refuse(http.StatusServiceUnavailable)
	f.waitPod(t, "web-9", podsource.ErrNotReady, nil) // another source may know it
	f.waitPod(t, "web-0", nil, func(interception.Pod) bool { return true })
	f.cluster.Put(pods("a", "web-1")...)
	f.cluster.Refuse(0)
	f.waitPod(t, "web-1", nil, func(interception.Pod) bool { return true })
	f.waitPod(t, "web-9", podsource.ErrNotFound, nil)
}

func TestPodsAreBounded(t *testing.T) {
	t.Parallel()
	large, applied := pods("a", "large")[0], pods("a", "applied")[0]
	large.Annotations = map[string]string{"note": strings.Repeat("x", nodepods.MaxPod)}
	applied.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": strings.Repeat("x", nodepods.MaxPod)}
	f := newFixture(t, large, applied)
	f.waitStatus(t, true, "")
	f.waitPod(t, "large", podsource.ErrNotReady, nil)
	f.waitPod(t, "applied", nil, func(p interception.Pod) bool { return len(p.Annotations) == 1 && len(p.Containers) == 2 })
}

func TestTLS(t *testing.T) {
	t.Parallel()
	cluster := fakecluster.New()
	cluster.Put(pods("a", "web-0")...)
	cluster.Require("token-1")
	server := httptest.NewTLSServer(cluster.Handler())
	t.Cleanup(func() { cluster.Refuse(http.StatusServiceUnavailable); server.Close() })
	dir := t.TempDir()
	ca, token := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "token")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := errors.Join(os.WriteFile(ca, certificate, 0o600), os.WriteFile(token, []byte("token-1\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		with   Server
		ready  bool
		reason string
	}{
		"good":           {Server{TokenFile: token, CAFile: ca}, true, ""},
		"not verified":   {Server{TokenFile: token, Insecure: true}, true, ""},
		"without token":  {Server{CAFile: ca}, false, "401"},
		"another's CA":   {Server{TokenFile: token}, false, "certificate"},
		"missing a file": {Server{TokenFile: filepath.Join(dir, "none"), CAFile: ca}, false, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fixture{cluster: cluster, statuses: make(chan podsource.AgentStatus, 100), ended: make(chan error, 1)}
			test.with.URL = server.URL
			pods, err := New(Options{
				Server: test.with, Node: "a", Log: slog.New(slog.DiscardHandler), OnStatus: func(s podsource.AgentStatus) { f.statuses <- s },
			})
			if err != nil {
				if test.ready || !strings.Contains(err.Error(), test.reason) {
					t.Fatal(err)
				}
				return
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() { f.ended <- pods.Run(ctx) }()
			f.waitStatus(t, test.ready, "")
			if name == "another's CA" {
				if err := <-f.ended; err == nil || !strings.Contains(err.Error(), "another CA") {
					t.Errorf("ended with %v", err)
				}
			}
		})
	}
}

func Example() {
	cluster := fakecluster.New()
	cluster.Put(fakecluster.Pod{Namespace: "shop", Name: "web-0", UID: "7f0b", Node: "a"})
	server := httptest.NewServer(cluster.Handler())
	defer server.Close()
	defer cluster.Refuse(http.StatusServiceUnavailable)

	ctx, end := context.WithCancel(context.Background())
	defer end()
	ready := make(chan struct{})
	pods, err := New(Options{Server: Server{URL: server.URL}, Node: "a", Log: slog.New(slog.DiscardHandler), OnStatus: func(s podsource.AgentStatus) {
		if s.Ready {
			close(ready)
		}
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	go pods.Run(ctx) //nolint:errcheck // Run ends with ctx
	<-ready
	pod, err := pods.Pod(ctx, podsource.Ref{Namespace: "shop", Name: "web-0"})
	fmt.Println(pod.UID, err)
	// Output: 7f0b <nil>
}
