// SPDX-License-Identifier: Apache-2.0

package ambientpart

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/examples/install-cni/internal/health"
	"github.com/meshcni/meshcni/examples/install-cni/internal/parts"
	"github.com/meshcni/meshcni/examples/internal/ambientnews"
	"github.com/meshcni/meshcni/internal/testing/testlog"
)

const patience = testlog.Patience

// TestMain is also the process, if it is called with lines to report.
func TestMain(m *testing.M) {
	if len(os.Args) == 5 && os.Args[1] == "play" {
		os.Exit(play(os.Args[2], os.Args[3], manner(os.Args[4])))
	}
	os.Exit(m.Run())
}

// fixture runs the parts.
type fixture struct {
	*Ambient
	state    *health.State
	log      *testlog.Log
	requests chan ambientnews.Request
	counts   chan ambientnews.Count
	failures chan string

	mu    sync.Mutex
	lines string
	as    manner
}

// start runs the parts with a process that answers.
func start(t *testing.T, lines ...string) *fixture {
	t.Helper()
	return startAs(t, answering, Options{}, lines...)
}

// startAs runs the parts with a process of a manner. AskEvery and Silence are those of the options.
func startAs(t *testing.T, as manner, o Options, lines ...string) *fixture {
	t.Helper()
	f := &fixture{
		as:    as,
		state: health.NewState(), log: testlog.New(), lines: strings.Join(lines, "\n"), requests: make(chan ambientnews.Request, 10),
		failures: make(chan string, 10), counts: make(chan ambientnews.Count, 10),
	}
	log := slog.New(slog.NewTextHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	socket := filepath.Join(t.TempDir(), "run", "events")
	o.Command = func() ([]string, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.lines == "" {
			return nil, errors.New("no program")
		}
		return []string{os.Args[0], "play", socket, f.lines, string(f.as)}, nil
	}
	o.Events, o.Proxy, o.Log = socket, filepath.Join(t.TempDir(), "ztunnel", "proxy"), log
	o.OnFailure, o.OnCount = func(step string) { f.failures <- step }, func(c ambientnews.Count) { f.counts <- c }
	o.OnRequest = func(r ambientnews.Request) {
		select {
		case f.requests <- r:
		default: // the test has seen enough
		}
	}
	f.Ambient = New(o)
	f.state.LookWithin = patience
	f.state.LogTo(log)
	supervisor := parts.New(f.state, log, f.Part(), f.ProxyPart())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); supervisor.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return f
}

// set sets what processes that are started from now on report. They answer.
func (f *fixture) set(lines string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lines, f.as = lines, answering
}

// await waits until the reason of a part contains the text; empty means that it is ready.
func (f *fixture) await(t *testing.T, part, reason string) {
	t.Helper()
	holds := func() bool {
		for _, c := range f.state.Conditions() {
			if c.Part == part {
				return c.Ready == (reason == "") && strings.Contains(c.Reason, reason)
			}
		}
		return false
	}
	if !f.log.Await(patience, holds) {
		t.Fatalf("%q is not the reason of %s within %v: %+v\n%s", reason, part, patience, f.state.Conditions(), f.log)
	}
}

// TestProxyIsAway: the node is ready without a proxy, which has a condition of its own.
func TestProxyIsAway(t *testing.T) {
	t.Parallel()
	f := start(t, `{"node":{"complete":true,"proxies":0,"lost":"it was killed"}}`)
	f.await(t, PartName, "")
	f.await(t, ProxyPartName, "the last connection: it was killed")
	if reasons := f.state.Reasons(); reasons != nil {
		t.Errorf("the node is not ready: %q", reasons)
	}
	f = start(t, `{"node":{"complete":true,"proxies":1}}`)
	f.await(t, ProxyPartName, "")
}

// TestOnNode has the node's namespace capture the pods: the proxy does not connect.
func TestOnNode(t *testing.T) {
	t.Parallel()
	for line, reason := range map[string]string{
		`{"node":{"complete":true,"onNode":true,"proxies":0}}`:                             "no pod of the proxy is ready",
		`{"node":{"complete":true,"onNode":true,"proxies":1}}`:                             "",
		`{"node":{"complete":true,"onNode":true,"proxies":1,"host":"no vxlan"}}`:           "no vxlan",
		`{"node":{"complete":true,"proxies":1,"host":"the chains are another program's"}}`: "",
	} {
		f := start(t, line)
		f.await(t, PartName, "")
		f.await(t, ProxyPartName, reason)
	}
}

// TestNotReady: pods of the mesh cannot start while the agent does not know them.
func TestNotReady(t *testing.T) {
	t.Parallel()
	start(t, `{"node":{"complete":false,"proxies":0}}`).await(t, PartName, "is being told of the node's pods")
	f := start(t, `{"node":{"complete":false,"feed":"no such socket","proxies":1}}`)
	f.await(t, PartName, "has not been told of the node's pods: no such socket")
	f.await(t, ProxyPartName, "")
	start(t, "what?").await(t, PartName, "starting")
}

// TestStandsBy has a process in whose place another daemon's serves, and then itself again.
func TestStandsBy(t *testing.T) {
	t.Parallel()
	lines := []string{
		`{"node":{"complete":true,"proxies":1}}`, `{"pod":{"uid":"1","wanted":true}}`, `{"standsBy":true}`,
		`{"request":{"status":200}}`,
	}
	f := start(t, lines...)
	<-f.requests
	f.await(t, PartName, "")
	f.await(t, ProxyPartName, "a newer node-ambient serves the node")
	if diff := cmp.Diff(&State{StandsBy: true}, f.State()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	f = start(t, append(lines, `{"node":{"complete":true,"proxies":2}}`, `{"request":{"status":200}}`)...)
	<-f.requests
	<-f.requests
	f.await(t, ProxyPartName, "")
	if got := f.State(); got.StandsBy || got.Node.Proxies != 2 || got.Pods[Enrolled] != 0 {
		t.Errorf("when it serves again: %+v", got)
	}
}

// TestProcessThatEndsIsStartedAgain also takes the socket away.
func TestProcessThatEndsIsStartedAgain(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.await(t, PartName, "no program")
	f.await(t, ProxyPartName, "node-ambient does not run")
	if state := f.State(); state != nil {
		t.Errorf("without a process: %+v", state)
	}
	f.set(`{"node":{"complete":true,"proxies":1}}`)
	f.await(t, PartName, "")
	f.await(t, ProxyPartName, "")
	f.state.Look(t.Context())
	f.await(t, PartName, "")
	f.set(`{"node":{"complete":false,"proxies":2}}`) // makes the next process visible
	if err := os.Remove(f.options.Events); err != nil {
		t.Fatal(err)
	}
	f.state.Look(t.Context())
	f.await(t, PartName, "is being told")
	if text := f.log.String(); !strings.Contains(text, "its socket was taken away") {
		t.Errorf("log:\n%s", text)
	}
	f.await(t, ProxyPartName, "")
}

func TestReports(t *testing.T) {
	t.Parallel()
	f := start(t,
		`{"pod":{"uid":"1","wanted":true,"step":"tell","error":"refused"}}`, `{"pod":{"uid":"1","wanted":true,"step":"tell","error":"refused again"}}`,
		`{"pod":{"uid":"1","wanted":true,"step":"apply","error":"forbidden"}}`, `{"pod":{"uid":"2","wanted":true}}`,
		`{"pod":{"uid":"3","wanted":true,"step":"await-proxy","rules":"planned","proxy":"told"}}`,
		`{"pod":{"uid":"4","wanted":true,"step":"open"}}`, `{"pod":{"uid":"5","wanted":false,"step":"await-drained"}}`,
		`{"pod":{"uid":"6","wanted":true}}`, `{"pod":{"uid":"6","wanted":false}}`,
		`{"request":{"status":200,"captured":true,"seconds":0.5}}`, `{"count":{"what":"edit","of":"add","times":2}}`, `{"node":{"complete":true,"proxies":1}}`)
	f.await(t, PartName, "")
	want := &State{
		Node:  ambientnews.Node{Complete: true, Proxies: 1},
		Pods:  map[Kind]int{Failed: 1, Enrolled: 1, Pending: 1, Enrolling: 1, Leaving: 1},
		Steps: map[string]int{"apply": 1, "await-proxy": 1, "open": 1, "await-drained": 1},
	}
	if diff := cmp.Diff(want, f.State()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := <-f.requests; got != (ambientnews.Request{Status: 200, Captured: true, Seconds: 0.5}) {
		t.Errorf("request %+v", got)
	}
	if got := <-f.counts; got != (ambientnews.Count{What: "edit", Of: "add", Times: 2}) {
		t.Errorf("count %+v", got)
	}
	if first, second := <-f.failures, <-f.failures; first != "tell" || second != "apply" || len(f.failures) > 0 {
		t.Errorf("failures %s, %s, and %d more", first, second, len(f.failures))
	}
}
