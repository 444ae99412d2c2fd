// SPDX-License-Identifier: Apache-2.0

package podsource_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/interception/podsource/agentserver"
)

// daemon is a node agent: it knows one pod, and keeps what it receives.
type daemon struct {
	mu      sync.Mutex
	pod     interception.Pod
	err     error // of every method
	asked   []podsource.Ref
	entries []podsource.LogEntry
	results []podsource.Result
	errors  []error
}

func (d *daemon) Pod(_ context.Context, ref podsource.Ref) (interception.Pod, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, ref)
	if d.err == nil && (ref.Namespace != d.pod.Namespace || ref.Name != d.pod.Name) {
		return interception.Pod{}, podsource.ErrNotFound
	}
	return d.pod, d.err
}

func (d *daemon) Log(_ context.Context, entries []podsource.LogEntry) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entries = append(d.entries, entries...)
	return d.err
}

func (d *daemon) Report(_ context.Context, results []podsource.Result) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.results = append(d.results, results...)
	return d.err
}

func (d *daemon) Status(context.Context) (podsource.AgentStatus, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return podsource.AgentStatus{Ready: true, Version: "v1.2.3"}, d.err
}

func (d *daemon) onError(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.errors = append(d.errors, err)
}

// server is all that the daemon offers.
func (d *daemon) server() agentserver.Server {
	return agentserver.Server{Pods: d, Logs: d, Results: d, Status: d, OnError: d.onError}
}

func webPod() interception.Pod {
	return interception.Pod{
		Namespace: "shop", Name: "web-0", UID: uid,
		Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"sidecar.istio.io/status": "{}"},
		ServiceAccount: "web", RunAsUser: new(int64(1000)),
		Containers: []interception.Container{
			{Name: "istio-proxy", Args: []string{"proxy", "sidecar"}, Env: map[string]string{"A": ""}, RunAsUser: new(int64(1337))},
		},
	}
}

// runDir is a directory with a path that is short enough for a socket.
func runDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "run") //nolint:usetesting // t.TempDir has the test's name in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// serve serves until the test ends.
func serve(t testing.TB, dir string, server agentserver.Server) {
	t.Helper()
	listener, err := agentserver.Listen(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// agentFor doesn't wait between attempts, and has time.
func agentFor(dir string) podsource.Agent {
	return podsource.Agent{
		RunDir: dir, Timeout: time.Minute, CallTimeout: time.Minute,
		Backoff: func(int) time.Duration { return 0 },
	}
}

func TestAgentKnowsThePod(t *testing.T) {
	t.Parallel()
	d := &daemon{pod: webPod()}
	dir := runDir(t)
	serve(t, dir, d.server())
	got, err := agentFor(dir).Pod(t.Context(), web)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(webPod(), got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]podsource.Ref{web}, d.asked); diff != "" {
		t.Error(diff)
	}
}

func TestAgentWithoutUIDAndWithThatOfAMirror(t *testing.T) {
	t.Parallel()
	pod := webPod()
	pod.UID, pod.Annotations = "of-the-mirror", map[string]string{"kubernetes.io/config.mirror": uid}
	dir := runDir(t)
	serve(t, dir, (&daemon{pod: pod}).server())
	for _, ref := range []podsource.Ref{web, {Namespace: "shop", Name: "web-0"}} {
		if _, err := agentFor(dir).Pod(t.Context(), ref); err != nil {
			t.Errorf("%+v: %v", ref, err)
		}
	}
}

func TestAgentIsTold(t *testing.T) {
	t.Parallel()
	d := &daemon{}
	dir := runDir(t)
	serve(t, dir, d.server())
	agent := agentFor(dir)
	at := time.Date(2026, 11, 21, 12, 0, 0, 5, time.UTC)
	entries := []podsource.LogEntry{{Time: at, Level: slog.LevelWarn, Message: "a", Attributes: map[string]string{"pod": "shop/web-0"}}}
	results := []podsource.Result{
		{
			Time: at, Command: "ADD", ContainerID: "c1", Namespace: "shop", Name: "web-0", UID: uid,
			Captured: true, Reason: "in-mesh", Source: "agent", Plan: "abc",
			Warnings: []string{"w"}, Stages: []podsource.Stage{{Name: "apply", Milliseconds: 1.5}},
		},
		{Time: at, Command: "ADD", Error: &podsource.ResultError{Code: 100, Message: "m", Details: "d"}},
	}
	if err := errors.Join(agent.Log(t.Context(), entries), agent.Report(t.Context(), results)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(entries, d.entries); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(results, d.results); diff != "" {
		t.Error(diff)
	}
	status, err := agent.Status(t.Context())
	if want := (podsource.AgentStatus{Ready: true, Version: "v1.2.3"}); err != nil || status != want {
		t.Errorf("got %+v, %v", status, err)
	}
}

// TestAgentBecomesRight has an agent whose view of the cluster is out of date.
func TestAgentBecomesRight(t *testing.T) {
	t.Parallel()
	for name, lag := range map[string]func(d *daemon){
		"missing": func(d *daemon) { d.err = podsource.ErrNotFound },
		"stale":   func(d *daemon) { d.pod.UID = "another" },
		"failing": func(d *daemon) { d.err = errors.New("cache is not filled yet") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &daemon{pod: webPod()}
			lag(d)
			dir := runDir(t)
			serve(t, dir, d.server())
			agent := agentFor(dir)
			agent.Backoff = func(failures int) time.Duration {
				if failures == 2 {
					d.mu.Lock()
					defer d.mu.Unlock()
					d.pod, d.err = webPod(), nil
				}
				return 0
			}
			if _, err := agent.Pod(t.Context(), web); err != nil {
				t.Error(err)
			}
			if len(d.asked) != 3 {
				t.Errorf("asked %d times", len(d.asked))
			}
		})
	}
}

func TestAgentRefusesWhatIsNoName(t *testing.T) {
	t.Parallel()
	_, err := agentFor(runDir(t)).Pod(t.Context(), podsource.Ref{Namespace: "shop", Name: "../secrets"})
	wantFailure(t, err, podsource.ErrRef, "see its log")
}

func TestAgentTakesNoMoreThanAMebibyte(t *testing.T) {
	t.Parallel()
	entries := []podsource.LogEntry{{Message: strings.Repeat("x", 1<<20)}}
	err := agentFor(runDir(t)).Log(t.Context(), entries)
	wantFailure(t, err, podsource.ErrRequest, "and may have 1048576; see whether")
}
