// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/examples/install-cni/internal/health"
	"github.com/meshcni/meshcni/examples/install-cni/internal/parts"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/interception/podsource/agentserver"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/internal/spool"
	"github.com/meshcni/meshcni/internal/testing/testlog"
)

const patience = testlog.Patience

// ledger is an observer and a log.
type ledger struct {
	mu       sync.Mutex
	requests map[string]int
	results  []podsource.Result
	log      *testlog.Log
}

func (l *ledger) Result(r podsource.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.results = append(l.results, r)
	l.log.Tell()
}

func (l *ledger) Request(request, outcome string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests[request+" "+outcome]++
	l.log.Tell()
}

// await waits until the condition holds, and checks it after each news.
func (l *ledger) await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	holds := func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return condition()
	}
	if !l.log.Await(patience, holds) {
		l.mu.Lock()
		defer l.mu.Unlock()
		t.Fatalf("%s: not within %v; %v\n%s", what, patience, l.requests, l.log)
	}
}

// fixture is an agent whose parts run until the test ends.
type fixture struct {
	*Agent
	*ledger
	state  *health.State
	client podsource.Agent
	kept   chan<- struct{}
	keeps  *atomic.Bool
}

func start(t *testing.T, pods Pods, prepare ...func(runDir string)) *fixture {
	t.Helper()
	f := begin(t, pods, prepare...)
	f.await(t, "ready", func() bool { return f.state.Reasons() == nil })
	return f
}

// begin does not wait until the agent is ready.
func begin(t *testing.T, pods Pods, prepare ...func(runDir string)) *fixture {
	t.Helper()
	runDir := filepath.Join(t.TempDir(), "run")
	for _, p := range prepare {
		p(runDir)
	}
	l := &ledger{requests: map[string]int{}, log: testlog.New()}
	log := slog.New(slog.NewTextHandler(l.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	kept, keeps := make(chan struct{}), &atomic.Bool{}
	keeps.Store(true)
	a := &Agent{
		RunDir: runDir, Version: "v1.2.3", Log: log, Now: time.Now, Observer: l, Pods: pods, Instance: "one", Keeps: keeps.Load, Kept: kept,
	}
	state := health.NewState()
	state.LookWithin = patience
	state.LogTo(log)
	supervisor := parts.New(state, log, a.Socket(), a.IstioLog(), a.Spool())
	a.Restart = supervisor.Restart
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); supervisor.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return &fixture{a, l, state, podsource.Agent{RunDir: runDir, Once: true}, kept, keeps}
}

// known knows a pod, or returns why it does not.
type known struct {
	pod     interception.Pod
	err     error
	unready string
}

func (k known) Pod(context.Context, podsource.Ref) (interception.Pod, error) { return k.pod, k.err }
func (k known) Unready() string                                              { return k.unready }

var (
	web    = podsource.Ref{Namespace: "shop", Name: "web-0"}
	line   = podsource.LogEntry{Time: noon, Level: slog.LevelInfo, Message: "pod is captured", Attributes: map[string]string{"pod": "shop/web-0"}}
	result = podsource.Result{Command: "ADD", Namespace: "shop", Name: "web-0", Captured: true, Reason: string(sidecar.ReasonInMesh)}
)

func TestSockets(t *testing.T) {
	t.Parallel()
	f := start(t, known{pod: interception.Pod{Namespace: "shop", Name: "web-0"}})
	if pod, err := f.client.Pod(t.Context(), web); err != nil || pod.Name != "web-0" {
		t.Errorf("got %v, %v", pod, err)
	}
	if status, err := f.client.Status(t.Context()); err != nil || status != (podsource.AgentStatus{Ready: true, Version: "v1.2.3"}) {
		t.Errorf("got %+v, %v", status, err)
	}
	if err := errors.Join(f.client.Log(t.Context(), []podsource.LogEntry{line}), f.client.Report(t.Context(), []podsource.Result{result})); err != nil {
		t.Error(err)
	}
	f.await(t, "counts", func() bool {
		return cmp.Equal(f.requests, map[string]int{"pod ok": 1, "status ok": 1, "logs ok": 1, "results ok": 1}) && len(f.results) == 1
	})
	f.await(t, "a line", func() bool {
		return strings.Contains(f.log.String(), `msg="pod is captured" from=cni-plugin pod=shop/web-0`)
	})
}

func TestPodsThatAreNotKnown(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err     error
		outcome string
	}{
		{podsource.ErrNotFound, "pod not-found"},
		{podsource.ErrStalePod, "pod stale"},
		{fmt.Errorf("listing: %w", podsource.ErrNotReady), "pod not-ready"},
		{errors.New("broken"), "pod failed"},
	} {
		f := start(t, known{err: test.err, unready: "listing"})
		if _, err := f.client.Pod(t.Context(), web); err == nil {
			t.Errorf("%v: no error", test.err)
		}
		if status, err := f.client.Status(t.Context()); err != nil || status.Ready || status.Reason != "listing" {
			t.Errorf("got %+v, %v", status, err)
		}
		f.await(t, test.outcome, func() bool { return f.requests[test.outcome] == 1 })
	}
}

func TestWithoutPods(t *testing.T) {
	t.Parallel()
	f := start(t, nil)
	if _, err := f.client.Pod(t.Context(), web); !errors.Is(err, podsource.ErrProtocol) {
		t.Errorf("got %v", err)
	}
	if status, err := f.client.Status(t.Context()); err != nil || status.Ready || status.Reason == "" {
		t.Errorf("got %+v, %v", status, err)
	}
}

// TestSpool leaves lines before the agent runs, and others while it runs.
func TestSpool(t *testing.T) {
	t.Parallel()
	keep := func(dir string, n int) {
		err := errors.Join(
			spool.PluginLog(dir, pluginName).Append(fmt.Appendf(nil, `{"time":"2026-11-21T12:00:00Z","level":"INFO","msg":"kept %d","pod":"shop/web-%[1]d"}`, n)),
			spool.PluginLog(dir, pluginName).Append([]byte(`{"time":"2026-11-21T12:00:00Z","level":"INFO","msg":"cut sho`)),
			spool.PluginResults(dir, pluginName).Append(fmt.Appendf(nil, `{"command":"ADD","name":"web-%d"}`, n)),
			spool.PluginResults(dir, pluginName).Append([]byte(`{"command":`)))
		if err != nil {
			t.Fatal(err)
		}
	}
	f := start(t, nil, func(runDir string) {
		if err := os.Mkdir(runDir, 0o750); err != nil {
			t.Fatal(err)
		}
		keep(runDir, 0)
	})
	collected := func(n int) func() bool {
		return func() bool {
			return strings.Contains(f.log.String(), fmt.Sprintf(`msg="kept %d" from=cni-plugin pod=shop/web-%[1]d`, n)) &&
				len(f.results) == n+1 && f.results[n].Name == fmt.Sprintf("web-%d", n)
		}
	}
	f.await(t, "what was there before", collected(0))
	keep(f.RunDir, 1)
	f.await(t, "what came later", collected(1))
}

func TestWhatIsTakenAwayComesBack(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(runDir string) error{
		"the agent's socket": func(dir string) error { return os.Remove(filepath.Join(dir, podsource.AgentSocket)) },
		"Istio's socket":     func(dir string) error { return os.Remove(filepath.Join(dir, spool.IstioLogSocket)) },
		"both, renamed": func(dir string) error {
			return errors.Join(os.Rename(filepath.Join(dir, podsource.AgentSocket), filepath.Join(dir, "a")),
				os.Rename(filepath.Join(dir, spool.IstioLogSocket), filepath.Join(dir, "b")))
		},
		"the directory": os.RemoveAll,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := start(t, nil)
			if err := take(f.RunDir); err != nil {
				t.Fatal(err)
			}
			f.await(t, "sockets", func() bool {
				for _, socket := range []string{podsource.AgentSocket, spool.IstioLogSocket} {
					if _, err := os.Lstat(filepath.Join(f.RunDir, socket)); err != nil {
						return false
					}
				}
				return f.state.Reasons() == nil
			})
			if _, err := f.client.Status(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestASuccessorsSocketIsNotTakenBack: a newer agent replaces this one.
func TestASuccessorsSocketIsNotTakenBack(t *testing.T) {
	t.Parallel()
	f := start(t, nil)
	listener, err := agentserver.Listen(t.Context(), f.RunDir)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := spool.PluginLog(f.RunDir, pluginName).Append([]byte(`{"time":"2026-11-21T12:00:00Z","level":"INFO","msg":"later"}`)); err != nil {
		t.Fatal(err)
	}
	f.await(t, "the events before", func() bool { return strings.Contains(f.log.String(), "msg=later") })
	for _, c := range f.state.Conditions() {
		if c.Restarts != 0 {
			t.Errorf("%s was started again", c.Part)
		}
	}
}

func TestSomethingElseInTheWay(t *testing.T) {
	t.Parallel()
	f := begin(t, nil, func(runDir string) {
		if err := os.MkdirAll(filepath.Join(runDir, podsource.AgentSocket), 0o700); err != nil {
			t.Fatal(err)
		}
	})
	f.await(t, "a reason", func() bool {
		return strings.Contains(strings.Join(f.state.Reasons(), ""), "something other than a socket")
	})
	if err := os.Remove(filepath.Join(f.RunDir, podsource.AgentSocket)); err != nil {
		t.Fatal(err)
	}
	f.await(t, "ready again", func() bool { return f.state.Reasons() == nil })
}
