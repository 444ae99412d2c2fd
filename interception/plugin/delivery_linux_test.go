// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/interception/podsource/agentserver"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/internal/spool"
)

// kept are the lines that wait on the disk for an agent.
func (n *node) kept(of func(runDir, name string) spool.Spool) []string {
	n.t.Helper()
	var all []string
	err := of(n.runDir, pluginName).Collect(n.t.Context(), func(lines [][]byte) error {
		for _, line := range lines {
			all = append(all, string(line))
		}
		return nil
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return all
}

func (n *node) keptResult() podsource.Result {
	n.t.Helper()
	lines := n.kept(spool.PluginResults)
	var r podsource.Result
	if len(lines) != 1 || json.Unmarshal([]byte(lines[0]), &r) != nil {
		n.t.Fatalf("got %q", lines)
	}
	return r
}

func mustBeTheResult(t *testing.T, r podsource.Result, reason sidecar.Reason, source string) {
	t.Helper()
	if r.Command != "ADD" || r.Time.IsZero() || r.ContainerID != "abc" || r.Namespace != "shop" || r.Name != "web-0" || r.UID != uid {
		t.Errorf("got %+v", r)
	}
	if r.Reason != string(reason) || r.Source != source || r.Captured != (reason == sidecar.ReasonInMesh && r.Error == nil) {
		t.Errorf("got %+v", r)
	}
}

func TestTheAgentHearsOfAnADD(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	a := agentOf(t, `"REDIRECT"`, `"REDIRECT", "traffic.sidecar.istio.io/excludeInboundPort": "80"`)
	n.serve(a)
	n.run(n.add()).mustSucceed(t)
	heard := a.told()
	if len(heard.results) != 1 || n.kept(spool.PluginResults) != nil || n.kept(spool.PluginLog) != nil {
		t.Fatalf("got %+v", heard.results)
	}
	r := heard.results[0]
	mustBeTheResult(t, r, sidecar.ReasonInMesh, "agent")
	var stages []string
	for _, stage := range r.Stages {
		stages = append(stages, stage.Name)
	}
	if strings.Join(stages, " ") != "source plan apply record" || len(r.Warnings) != 1 || r.Plan == "" {
		t.Errorf("got %+v", r)
	}
	last := heard.logs[len(heard.logs)-1]
	if last.Message != "pod is captured" || last.Attributes["pod"] != "shop/web-0" || last.Attributes["plan"] != r.Plan || last.Time.IsZero() {
		t.Errorf("got %+v", heard.logs)
	}
}

func TestTheAgentHearsOfAnADDOnTheConnectionThatAskedForThePod(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	a := agentOf(t)
	listener := n.serveBy(agentserver.Server{Pods: a, Status: a, Logs: a, Results: a})
	n.run(n.add()).mustSucceed(t)
	if heard := a.told(); len(heard.results) != 1 || listener.accepted.Load() != 1 {
		t.Errorf("got %d results on %d connections", len(heard.results), listener.accepted.Load())
	}
}

func TestTheLogIsInUTC(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	newLogger(&text, slog.LevelInfo).Info("m", "time", "an attribute", "at", time.Now().In(time.FixedZone("east", 3600)))
	zones := regexp.MustCompile(`"time":"[^"]*Z",.*"time":"an attribute","at":"[^"]*\+01:00"`)
	if !zones.Match(text.Bytes()) {
		t.Errorf("got %s", text.String())
	}
}

func TestWithoutAnAgentItIsKept(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	o := n.run(n.add())
	o.mustSucceed(t)
	mustBeTheResult(t, n.keptResult(), sidecar.ReasonInMesh, "api-server")
	if got := strings.Join(n.kept(spool.PluginLog), "\n") + "\n"; got != o.stderr {
		t.Errorf("got %s, want what was logged: %s", got, o.stderr)
	}
	n.server.Close()
	e := n.run(n.add()).mustFail(t, codeUnreachable)
	r := n.keptResult()
	mustBeTheResult(t, r, "", "")
	if r.Error == nil || r.Error.Code != e.Code || r.Error.Message != e.Msg {
		t.Errorf("got %+v", r)
	}
}

// lateAgent takes results only once it may.
type lateAgent struct {
	*agent
	asked chan struct{} // has an element for each time
	may   chan struct{} // is closed then
	taken chan struct{} // has an element for each time
}

func (a lateAgent) Report(ctx context.Context, results []podsource.Result) error {
	a.asked <- struct{}{}
	<-a.may
	defer func() { a.taken <- struct{}{} }()
	return a.agent.Report(ctx, results)
}

// TestTheAgentIsLate has an agent take a result when the plugin has given it up: the result is kept
// as well, and the call is none the worse.
func TestTheAgentIsLate(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	const most = 100
	a := lateAgent{agentOf(t), make(chan struct{}, most), make(chan struct{}), make(chan struct{}, most)}
	n.serveBy(agentserver.Server{Pods: a, Status: a, Logs: a, Results: a})
	for n.limits.Tell = 10 * time.Millisecond; len(a.asked) == 0; n.limits.Tell *= 2 { // until the agent is asked in time
		n.run(n.add()).mustSucceed(t)
		mustBeTheResult(t, n.keptResult(), sidecar.ReasonInMesh, "agent")
	}
	close(a.may)
	a.told() // the agent is about to take the result
	<-a.taken
	heard := a.told()
	if len(heard.results) == 0 {
		t.Fatal("the agent has taken nothing")
	}
	mustBeTheResult(t, heard.results[0], sidecar.ReasonInMesh, "agent")
}

// There are many pods that no source is asked about, so the plugin doesn't even tell the agent at
// once.
func TestAPodThatNobodyIsAskedAboutOpensNoSocket(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	a := agentOf(t)
	n.serve(a)
	n.run(n.add(`{"runtimeConfig": {"io.kubernetes.cri.pod-annotations": {}}}`)).mustSucceed(t)
	if heard := a.told(); a.calls.Load() > 0 || len(heard.logs) > 0 || len(heard.results) > 0 {
		t.Errorf("the agent heard of it: %+v", heard)
	}
	mustBeTheResult(t, n.keptResult(), sidecar.ReasonNotInjected, "")
	if lines := n.kept(spool.PluginLog); len(lines) != 1 || !strings.Contains(lines[0], "not-injected") {
		t.Errorf("got %q", lines)
	}
}

// What goes wrong before the configuration is understood is heard of, too.
func TestEarlyFailuresReachTheAgent(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	a := agentOf(t)
	n.serve(a)
	n.run(n.add(`{"timeout": "soon"}`)).mustFail(t, types.ErrInvalidNetworkConfig)
	if heard := a.told(); len(heard.logs) != 1 || !strings.Contains(heard.logs[0].Message, "timeout is ") || len(heard.results) != 1 {
		t.Errorf("got %+v", heard)
	}
}

// Istio's own agent has a socket for log lines alone.
func TestIstiosAgentHearsOfAnADD(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	lines := n.istioAgent()
	n.run(n.add()).mustSucceed(t)
	if got := <-lines; !strings.Contains(got, `\"msg\":\"pod is captured\"`) {
		t.Errorf("got %s", got)
	}
	if n.kept(spool.PluginLog) != nil {
		t.Error("the log was kept as well")
	}
	n.keptResult()
}

// istioAgent takes one request on log.sock.
func (n *node) istioAgent() <-chan string {
	n.t.Helper()
	listener, err := net.Listen("unix", filepath.Join(n.runDir, "log.sock"))
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = listener.Close() })
	requests := make(chan string, 1)
	go func() {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		defer connection.Close()
		buffer := make([]byte, 1<<16)
		size, _ := connection.Read(buffer)
		requests <- string(buffer[:size])
		_, _ = connection.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
	}()
	return requests
}

// Without a run directory nothing is made.
func TestNothingIsKeptWhereNothingIsInstalled(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	elsewhere := filepath.Join(n.runDir, "missing")
	n.run(n.add(`{"cni_agent_run_dir": "` + elsewhere + `", "kubeconfig": "` + n.kubeconfig() + `"}`)).mustSucceed(t)
	if _, err := os.Stat(elsewhere); err == nil {
		t.Error("a run directory was made")
	}
}
