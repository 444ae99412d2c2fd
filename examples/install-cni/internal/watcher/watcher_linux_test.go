// SPDX-License-Identifier: Apache-2.0

package watcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/examples/install-cni/internal/health"
	"github.com/meshcni/meshcni/examples/install-cni/internal/parts"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/interception/podsource/agentserver"
	"github.com/meshcni/meshcni/internal/testing/testlog"
	"github.com/meshcni/meshcni/repair"
)

const patience = testlog.Patience

// TestMain is also the watched process, if it is called with a behaviour to play.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "play" {
		os.Exit(play(os.Args[2], os.Args[3]))
	}
	os.Exit(m.Run())
}

// play is a process that reports something, and ends with its input.
func play(what, dir string) int {
	ctx, end := context.WithCancel(context.Background())
	go func() { defer end(); io.Copy(io.Discard, os.Stdin) }() //nolint:errcheck // the test ends with its input, whatever the error
	switch what {
	case "fail":
		fmt.Fprintln(os.Stderr, `{"time":"2026-11-21T12:00:00Z","level":"ERROR","msg":"ended","error":"no such server"}`)
		return 1
	case "wait":
		fmt.Println("what?")
		fmt.Println(`{"ready":false}`)
		<-ctx.Done()
		return 0
	}
	listener, err := agentserver.Listen(ctx, dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(`{"repair":{"scanned":true,"pods":{"broken":2}}}`)
	fmt.Println(`{"installed":true}`)
	fmt.Println(`{"installed":false}`)
	if what == "tell" {
		fmt.Println(`{"pod":{"namespace":"shop","name":"told","uid":"1","annotations":{"kubernetes.io/config.mirror":"2"}}}`)
		fmt.Println(`{"pod":{"namespace":"shop","name":"web-0","uid":"of an earlier pod"}}`)
		fmt.Println(`{"pod":{"namespace":"shop","name":"gone"}}`)
		fmt.Println(`{"gone":{"namespace":"shop","name":"gone"}}`)
	}
	fmt.Println(`{"ready":true}`)
	server := agentserver.Server{Pods: knows{}}
	if what == "silent" {
		server.Status = silent{}
	}
	if err := server.Serve(ctx, listener); err != nil {
		return 1
	}
	return 0
}

// knows is a source with one pod.
type knows struct{}

func (knows) Pod(_ context.Context, ref podsource.Ref) (interception.Pod, error) {
	switch ref.Name {
	case "web-0":
		return interception.Pod{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}, nil
	case "broken":
		return interception.Pod{}, errors.New("broken")
	}
	return interception.Pod{}, podsource.ErrNotFound
}

// silent reports an API server that has been silent for long.
type silent struct{}

func (silent) Status(context.Context) (podsource.AgentStatus, error) {
	return podsource.AgentStatus{Reason: "nothing was told", Server: &podsource.ServerStatus{Age: 200, Failure: "refused"}}, nil
}

// TestASilentAPIServer: the part is not ready, but requests for known pods are answered as before.
func TestASilentAPIServer(t *testing.T) {
	t.Parallel()
	f := start(t, "silent")
	f.await(t, "")
	if got := f.Server(); got != nil {
		t.Errorf("before anybody has asked: %+v", got)
	}
	f.state.Look(t.Context())
	f.await(t, "pods: nothing was told")
	if err := f.ask(t, "web-0"); err != nil || f.Unready() != "" {
		t.Errorf("got %v, unready %q", err, f.Unready())
	}
	if got := f.Server(); got == nil || got.Age != 200 || got.Failure != "refused" {
		t.Errorf("got %+v", got)
	}
}

// TestServerStandsWhileTheProcessIsSlow: a check without an answer keeps the last status of the API
// server.
func TestServerStandsWhileTheProcessIsSlow(t *testing.T) {
	t.Parallel()
	f := start(t, "silent")
	f.await(t, "")
	f.check(t.Context())
	late, cancel := context.WithCancel(t.Context())
	cancel()
	if reason := f.check(late); !strings.Contains(reason, "doesn't answer") {
		t.Fatalf("the process has answered: %q", reason)
	}
	if got := f.Server(); got == nil || got.Age != 200 {
		t.Errorf("got %+v", got)
	}
}

// TestNoProcessRuns: without a process, a missing socket ends nothing.
func TestNoProcessRuns(t *testing.T) {
	t.Parallel()
	w := New(Options{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if reason := w.check(t.Context()); !strings.Contains(reason, "doesn't answer") {
		t.Errorf("got %q", reason)
	}
	// As with a process that reports ready before it is known here.
	w.reason = ""
	if _, err := w.Pod(t.Context(), podsource.Ref{Namespace: "shop", Name: "web-0"}); !errors.Is(err, podsource.ErrNotReady) {
		t.Errorf("got %v", err)
	}
}

// fixture runs the part.
type fixture struct {
	*Watcher
	state *health.State
	log   *testlog.Log
	mu    sync.Mutex
	play  string
	told  []bool // whether the installation's object exists
}

func start(t *testing.T, play string) *fixture {
	t.Helper()
	f := &fixture{state: health.NewState(), log: testlog.New(), play: play}
	log := slog.New(slog.NewTextHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	dir := filepath.Join(t.TempDir(), "w")
	f.Watcher = New(Options{Dir: dir, Log: log, Command: func() ([]string, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.play == "" {
			return nil, errors.New("no program")
		}
		return []string{os.Args[0], "play", f.play, dir}, nil
	}, OnRepair: func() {}, OnInstalled: func(there bool) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.told = append(f.told, there)
	}})
	f.state.LookWithin = patience
	f.state.LogTo(log)
	supervisor := parts.New(f.state, log, f.Part())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); supervisor.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return f
}

func (f *fixture) set(play string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.play = play
}

// stop ends the running process.
func (f *fixture) stop() {
	f.Watcher.mu.Lock()
	defer f.Watcher.mu.Unlock()
	f.end(errors.New("the test has ended it"))
}

// await waits until the reason contains this text; "" means ready.
func (f *fixture) await(t *testing.T, reason string) {
	t.Helper()
	holds := func() bool {
		reasons := strings.Join(f.state.Reasons(), "")
		return strings.Contains(reasons, reason) && (reason == "") == (reasons == "")
	}
	if !f.log.Await(patience, holds) {
		t.Fatalf("%q is not the reason within %v:\n%s", reason, patience, f.log)
	}
}

func (f *fixture) ask(t *testing.T, name string) error {
	t.Helper()
	_, err := f.Pod(t.Context(), podsource.Ref{Namespace: "shop", Name: name})
	return err
}

func TestPodsOfAProcess(t *testing.T) {
	t.Parallel()
	f := start(t, "serve")
	f.await(t, "")
	if err := f.ask(t, "web-0"); err != nil || f.Unready() != "" {
		t.Errorf("got %v, unready %q", err, f.Unready())
	}
	f.mu.Lock()
	if diff := cmp.Diff([]bool{true, false}, f.told); diff != "" {
		t.Errorf("the installation's object (-want +got):\n%s", diff)
	}
	f.mu.Unlock()
	if status := f.Repair(); status == nil || !status.Scanned || status.Pods[repair.Broken] != 2 {
		t.Errorf("got %+v", status)
	}
	if err := f.ask(t, "web-1"); !errors.Is(err, podsource.ErrNotFound) || errors.Is(err, podsource.ErrNotReady) {
		t.Errorf("got %v", err)
	}
	if err := f.ask(t, "broken"); !errors.Is(err, podsource.ErrNotReady) {
		t.Errorf("got %v", err)
	}
}

// TestPodsThatWereTold: the process is asked only about pods that it has not reported.
func TestPodsThatWereTold(t *testing.T) {
	t.Parallel()
	f := start(t, "tell")
	f.await(t, "")
	for _, test := range []struct {
		ref  podsource.Ref
		want error
		uid  string
	}{
		{podsource.Ref{Name: "told"}, nil, "1"},
		{podsource.Ref{Name: "told", UID: "1"}, nil, "1"},
		{podsource.Ref{Name: "told", UID: "2"}, nil, "1"},
		{podsource.Ref{Name: "told", UID: "3"}, podsource.ErrNotFound, ""},
		{podsource.Ref{Name: "web-0", UID: "7f0b"}, nil, "7f0b"},
		{podsource.Ref{Name: "gone"}, podsource.ErrNotFound, ""},
		{podsource.Ref{Name: "web-1"}, podsource.ErrNotFound, ""},
	} {
		test.ref.Namespace = "shop"
		if pod, err := f.Pod(t.Context(), test.ref); !errors.Is(err, test.want) || pod.UID != test.uid {
			t.Errorf("%+v: got %+v, %v", test.ref, pod, err)
		}
	}
	f.set("wait")
	f.stop()
	f.await(t, "is not ready")
	if err := f.ask(t, "told"); !errors.Is(err, podsource.ErrNotReady) {
		t.Errorf("while the next process is starting: got %v", err)
	}
	f.set("serve")
	f.stop()
	f.await(t, "")
	if err := f.ask(t, "told"); !errors.Is(err, podsource.ErrNotFound) {
		t.Errorf("the next process has told nothing of the pod: got %v", err)
	}
}

func TestProcessThatFailsIsStartedAgain(t *testing.T) {
	t.Parallel()
	f := start(t, "fail")
	f.await(t, "exit status 1: ended: no such server")
	if err := f.ask(t, "web-0"); !errors.Is(err, podsource.ErrNotReady) {
		t.Errorf("got %v", err)
	}
	if status := f.Repair(); status != nil {
		t.Errorf("got %+v", status)
	}
	f.set("")
	f.await(t, "no program")
	f.set("serve")
	f.await(t, "")
	if err := f.ask(t, "web-0"); err != nil {
		t.Error(err)
	}
	if text := f.log.String(); !strings.Contains(text, `level=ERROR msg=ended from=node-watcher error="no such server"`) {
		t.Errorf("log:\n%s", text)
	}
}

// TestASocketThatIsTakenAway: otherwise nothing would detect it, and each pod would be read from
// the API server from then on.
func TestASocketThatIsTakenAway(t *testing.T) {
	t.Parallel()
	f := start(t, "serve")
	f.await(t, "")
	if err := os.Remove(filepath.Join(f.options.Dir, podsource.AgentSocket)); err != nil {
		t.Fatal(err)
	}
	f.set("wait") // makes the next process visible
	if err := f.ask(t, "web-0"); !errors.Is(err, podsource.ErrNotReady) {
		t.Errorf("got %v", err)
	}
	f.await(t, "is not ready")
	text := f.log.String()
	if !strings.Contains(text, "its socket was taken away") {
		t.Errorf("log:\n%s", text)
	}
}

func TestProcessThatIsNotReady(t *testing.T) {
	t.Parallel()
	f := start(t, "wait")
	f.await(t, "is not ready")
	if err := f.ask(t, "web-0"); !errors.Is(err, podsource.ErrNotReady) || !strings.Contains(err.Error(), "is not ready") {
		t.Errorf("got %v", err)
	}
}
