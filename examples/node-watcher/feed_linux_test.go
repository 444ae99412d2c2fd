// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/feed"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/footprint"
	"github.com/meshcni/meshcni/internal/testing/fakecluster"
)

// program builds the node-watcher.
func program(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "node-watcher")
	if output, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, output)
	}
	return path
}

// serve serves a cluster until the test ends.
func serve(t *testing.T, cluster *fakecluster.Cluster) (url string) {
	t.Helper()
	server := httptest.NewServer(cluster.Handler())
	t.Cleanup(func() { cluster.Refuse(http.StatusServiceUnavailable); server.Close() })
	return server.URL
}

// privateDirectory is one that no other user can write to.
func privateDirectory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// begin starts the program until the test ends, or until the caller kills it.
func begin(t *testing.T, path string, args ...string) *exec.Cmd {
	t.Helper()
	process := exec.Command(path, args...)
	process.Env, process.Stderr = []string{}, t.Output()
	stdin, err := process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = process.Wait() // a killed one has an error
	})
	return process
}

// agent is what an agent of ambient mode knows by the feed.
type agent struct {
	*feed.Client
	pods       map[string]ambient.Pod // by UID
	namespaces map[string]map[string]string
	complete   int
}

// connect reads the feed until the test ends.
func connect(t *testing.T, socket string) *agent {
	t.Helper()
	a := &agent{pods: map[string]ambient.Pod{}, namespaces: map[string]map[string]string{}}
	a.Client = feed.NewClient(socket, feed.ClientOptions{
		Backoff: func(int) time.Duration { return 10 * time.Millisecond }, AnnotateBackoff: func(int) time.Duration { return 10 * time.Millisecond },
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); a.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return a
}

// await reads news until a condition holds.
func (a *agent) await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !condition() {
		change, err := a.Next(ctx)
		if err != nil {
			t.Fatalf("%s: %v; known are %+v", what, err, a.pods)
		}
		for _, n := range change.Namespaces {
			a.namespaces[n.Name] = n.Labels
		}
		for _, p := range change.Pods {
			a.pods[p.UID] = p
		}
		for _, uid := range change.Gone {
			delete(a.pods, uid)
		}
		if change.Complete {
			a.complete++
		}
	}
}

// annotated reports whether all pods have the status.
func (a *agent) annotated(status ambient.Status) bool {
	for _, p := range a.pods {
		if p.Annotations[ambient.Istio().Status] != string(status) {
			return false
		}
	}
	return true
}

// TestFeed: a node's agent learns of 200 pods and the labels of their namespaces, has all of them
// annotated, and learns of changes, also after the process was killed and started again.
func TestFeed(t *testing.T) {
	t.Parallel()
	cluster := fakecluster.New()
	cluster.PutNamespace("shop", map[string]string{"istio.io/dataplane-mode": "ambient"})
	for i := range 200 {
		cluster.Put(fakecluster.Pod{Namespace: "shop", Name: fmt.Sprint("web-", i), UID: fmt.Sprint("uid-", i), Node: "a"})
	}
	cluster.Put(fakecluster.Pod{Namespace: "shop", Name: "elsewhere", UID: "elsewhere", Node: "b"})
	path, dir := program(t), privateDirectory(t)
	socket := filepath.Join(dir, "feed.sock")
	args := []string{"-node=a", "-dir=" + dir, "-server=" + serve(t, cluster), "-feed=" + socket}
	first := begin(t, path, args...)
	a := connect(t, socket)
	a.await(t, "all pods", func() bool { return a.complete == 1 })
	if len(a.pods) != 200 || a.namespaces["shop"]["istio.io/dataplane-mode"] != "ambient" {
		t.Errorf("told of %d pods, and of the namespaces %v", len(a.pods), a.namespaces)
	}
	before := time.Now()
	for _, p := range a.pods {
		a.Annotate(p.Pod, ambient.StatusEnabled)
	}
	a.await(t, "all are annotated", func() bool { return a.annotated(ambient.StatusEnabled) })
	t.Logf("200 annotations took %s", time.Since(before))
	cluster.PutNamespace("shop", map[string]string{"team": "blue"})
	a.await(t, "a change of the namespace", func() bool { return a.namespaces["shop"]["team"] == "blue" })

	if err := first.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	cluster.Delete("shop", "web-0")
	begin(t, path, args...)
	a.await(t, "all pods again", func() bool { return a.complete == 2 })
	if _, known := a.pods["uid-0"]; known || len(a.pods) != 199 {
		t.Errorf("told of %d pods after a restart, want 199 without the one that is gone", len(a.pods))
	}
}

// TestAnotherPodIsNotAnnotated has a pod replaced by one of the same name before the annotation is
// written.
//
//nolint:paralleltest // other tests call run, which sets the logger of client-go for the whole process
func TestAnotherPodIsNotAnnotated(t *testing.T) {
	cluster := fakecluster.New()
	cluster.PutNamespace("shop", nil)
	cluster.Put(fakecluster.Pod{Namespace: "shop", Name: "web-0", UID: "new", Node: "a"})
	a := connect(t, watchWithFeed(t, cluster, slog.New(slog.NewTextHandler(t.Output(), nil))))
	a.await(t, "all pods", func() bool { return a.complete == 1 })
	a.Annotate(interception.Pod{Namespace: "shop", Name: "web-0", UID: "old"}, ambient.StatusEnabled)
	for deadline := time.After(patience); len(cluster.Writes()) == 0; {
		select {
		case <-time.After(time.Millisecond):
		case <-deadline:
			t.Fatal("the API server is not asked")
		}
	}
	if pod, _ := cluster.Pod("shop", "web-0"); pod.Annotations[ambient.Istio().Status] != "" || cluster.Writes()[0].Status == http.StatusOK {
		t.Errorf("the pod that came later is annotated: %v, %+v", pod.Annotations, cluster.Writes())
	}
}

// watchWithFeed runs the program without its log, until the test ends.
func watchWithFeed(t *testing.T, cluster *fakecluster.Cluster, log *slog.Logger, args ...string) (socket string) {
	t.Helper()
	dir := privateDirectory(t)
	socket = filepath.Join(dir, "feed.sock")
	env := environment{
		args:   append([]string{"-node=a", "-dir=" + dir, "-server=" + serve(t, cluster), "-feed=" + socket}, args...),
		stdout: t.Output(), stderr: t.Output(), trim: func() error { return nil }, trimAfter: time.Hour,
	}
	o, err := parse(env)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := watch(ctx, env, o, log); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return socket
}

// TestLargePodsKeepWhatSelectorsRead has a pod that is too large to be kept, and selectors with a
// label of their own.
//
//nolint:paralleltest // other tests call run, which sets the logger of client-go for the whole process
func TestLargePodsKeepWhatSelectorsRead(t *testing.T) {
	cluster := fakecluster.New()
	cluster.PutNamespace("shop", nil)
	cluster.Put(fakecluster.Pod{
		Namespace: "shop", Name: "web-0", UID: "7f0b", Node: "a", Labels: map[string]string{"mesh": "yes", "other": "no"},
		Annotations: map[string]string{"large": strings.Repeat("x", 100<<10)},
	})
	socket := watchWithFeed(t, cluster, slog.New(slog.DiscardHandler), `-ambient={"selectors":[{"podSelector":{"matchLabels":{"mesh":"yes"}}}]}`)
	a := connect(t, socket)
	a.await(t, "all pods", func() bool { return a.complete == 1 })
	if got := a.pods["7f0b"].Labels; !maps.Equal(got, map[string]string{"mesh": "yes", "app": "web-0"}) {
		t.Errorf("the labels %v are told, want those that the selectors and the proxy's label read", got)
	}
}

// TestNamespacesAreWatchedForTheFeedAlone runs the program without a feed, and with one.
//
//nolint:paralleltest // other tests call run, which sets the logger of client-go for the whole process
func TestNamespacesAreWatchedForTheFeedAlone(t *testing.T) {
	for name, with := range map[string]bool{"with a feed": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			cluster := fakecluster.New()
			cluster.PutNamespace("shop", nil)
			cluster.Put(fakecluster.Pod{Namespace: "shop", Name: "web-0", UID: "7f0b", Node: "a"})
			var asked atomic.Bool
			cluster.Answer(func(r *http.Request) int {
				if strings.HasPrefix(r.URL.Path, namespacesPath) {
					asked.Store(true)
				}
				return 0
			})
			dir := privateDirectory(t)
			socket, want := filepath.Join(dir, "feed.sock"), 2
			env := environment{
				args: []string{"-node=a", "-dir=" + dir, "-server=" + serve(t, cluster)}, trim: func() error { return nil }, trimAfter: time.Hour,
			}
			if with {
				env.args, want = append(env.args, "-feed="+socket), 3
			}
			reader, writer := io.Pipe()
			env.stdout, env.stderr = writer, t.Output()
			o, err := parse(env)
			if err != nil {
				t.Fatal(err)
			}
			memory := footprint.NewTrimmer(footprint.Options{Quiet: env.trimAfter, Trim: env.trim, Log: slog.New(slog.DiscardHandler)})
			defer memory.Stop()
			tasks, err := prepare(t.Context(), env, o, memory, slog.New(slog.DiscardHandler))
			if err != nil || len(tasks) != want {
				t.Fatalf("%d tasks, %v; want %d", len(tasks), err, want)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var group sync.WaitGroup
			defer group.Wait()
			defer cancel()
			defer reader.Close()
			for _, work := range tasks {
				group.Go(func() { _ = work(ctx) }) // it ends with the context
			}
			heardUntilReady(t, reader)
			if with {
				a := connect(t, socket)
				a.await(t, "all pods", func() bool { return a.complete == 1 })
			}
			if asked.Load() != with {
				t.Errorf("namespaces are asked for: %v", asked.Load())
			}
		})
	}
}

// TestOutagesAreLoggedOnce has annotations refused several times, by an API server that allows them
// later, and an agent that may not connect.
func TestOutagesAreLoggedOnce(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo}))
	memory := footprint.NewTrimmer(footprint.Options{Quiet: time.Hour, Trim: func() error { return nil }, Log: log})
	defer memory.Stop()
	api := &answering{}
	a := &annotator{next: api, log: log, memory: memory}
	forbidden := errors.New("forbidden")
	for _, answer := range []error{forbidden, forbidden, feed.ErrPodGone, forbidden, nil, nil, forbidden} {
		api.err = answer
		if err := a.Annotate(t.Context(), interception.Pod{Namespace: "shop", Name: "web-0"}, ambient.StatusEnabled); !errors.Is(err, answer) {
			t.Errorf("the agent gets %v, want %v", err, answer)
		}
	}
	if got := out.String(); strings.Count(got, "forbidden") != 2 || strings.Count(got, "annotated again") != 1 {
		t.Errorf("two outages are logged as\n%s", got)
	}
	out.Reset()
	observe := logFeed(t.Context(), log)
	for connection := range 3 {
		observe(feed.Event{Kind: feed.Disconnected, Connection: connection, Err: errors.New("refused")})
		observe(feed.Event{Kind: feed.NotAnnotated, Connection: connection, UID: "7f0b", Err: forbidden})
	}
	observe(feed.Event{Kind: feed.Connected, Connection: 4})
	observe(feed.Event{Kind: feed.Disconnected, Connection: 4, Err: errors.New("refused")})
	if got := out.String(); strings.Count(got, "refused") != 2 || strings.Contains(got, "forbidden") {
		t.Errorf("events are logged as\n%s", got)
	}
}

// answering is an annotator with one answer.
type answering struct{ err error }

func (a *answering) Annotate(context.Context, interception.Pod, ambient.Status) error { return a.err }
