// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/meshcni/meshcni/examples/install-cni/internal/parts"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/interception/podsource/agentserver"
)

// The names of the parts.
const (
	socketPart   = "agent-socket"
	istioLogPart = "log-socket"
	spoolPart    = "spool"
)

// Observer counts what happens.
type Observer interface {
	// Result takes what a plugin's command came to.
	Result(result podsource.Result)
	// Request takes what became of a request at a socket. Both are one of few words.
	Request(request, outcome string)
}

// Pods knows the pods of the node.
type Pods interface {
	podsource.Source
	// Unready says why it couldn't tell about any pod now; empty when it could.
	Unready() string
}

// Agent has the parts. All fields but Pods must be set.
type Agent struct {
	// RunDir is the directory of the sockets, and of what plugins keep for want of one. It is made when it isn't there.
	RunDir string
	// Version is the daemon's own.
	Version string
	// Log takes plugins' lines, and the agent's own.
	Log *slog.Logger
	// Now is the clock.
	Now func() time.Time
	// Observer counts.
	Observer Observer
	// Pods answers for pods; nil where none are watched, so that plugins ask the API server.
	Pods Pods
}

// runDirMode lets root's group look, and nobody else.
const runDirMode = 0o750

// listen makes a socket in the run directory.
func (a *Agent) listen(
	ctx context.Context, bind func(ctx context.Context, runDir string) (net.Listener, error),
) (net.Listener, error) {
	if err := os.MkdirAll(a.RunDir, runDirMode); err != nil {
		return nil, fmt.Errorf("make the run directory: %w", err)
	}
	return bind(ctx, a.RunDir)
}

// Socket serves the agent's own protocol.
func (a *Agent) Socket() parts.Part {
	return parts.Part{Name: socketPart, Run: func(ctx context.Context, say func(string)) error {
		listener, err := a.listen(ctx, agentserver.Listen)
		if err != nil {
			return err
		}
		server := agentserver.Server{
			Logs: a.logs("logs"), Results: counted[[]podsource.Result]{"results", results{a.Log, a.Observer}.Report, a.Observer},
			Status: a, OnError: a.failed,
		}
		if a.Pods != nil {
			server.Pods = pods{a.Pods, a.Observer}
		}
		say("")
		return server.Serve(ctx, listener)
	}}
}

// IstioLog serves Istio's protocol for log lines.
func (a *Agent) IstioLog() parts.Part {
	return parts.Part{Name: istioLogPart, Run: func(ctx context.Context, say func(string)) error {
		listener, err := a.listen(ctx, agentserver.ListenIstioLog)
		if err != nil {
			return err
		}
		say("")
		return agentserver.IstioLogServer{Logs: a.logs("istio-logs"), OnError: a.failed}.Serve(ctx, listener)
	}}
}

// Status says whether plugins can ask for any pod.
func (a *Agent) Status(context.Context) (podsource.AgentStatus, error) {
	a.Observer.Request("status", "ok")
	status := podsource.AgentStatus{Reason: "this agent watches no pods", Version: a.Version}
	if a.Pods != nil {
		status.Reason = a.Pods.Unready()
		status.Ready = status.Reason == ""
	}
	return status, nil
}

func (a *Agent) logs(request string) counted[[]podsource.LogEntry] {
	return counted[[]podsource.LogEntry]{request, (&lines{to: a.Log.Handler(), now: a.Now}).Log, a.Observer}
}

// failed logs what no plugin can be told.
func (a *Agent) failed(err error) {
	if peer := (*podsource.PeerError)(nil); errors.As(err, &peer) {
		a.Observer.Request("any", "refused")
	}
	a.Log.Warn("a request at the agent's sockets", "error", err)
}

// counted counts what a sink does.
type counted[T any] struct {
	request  string
	take     func(context.Context, T) error
	observer Observer
}

// Log is for log lines.
func (c counted[T]) Log(ctx context.Context, all T) error { return c.count(ctx, all) }

// Report is for results.
func (c counted[T]) Report(ctx context.Context, all T) error { return c.count(ctx, all) }

func (c counted[T]) count(ctx context.Context, all T) error {
	err := c.take(ctx, all)
	c.observer.Request(c.request, outcome(err))
	return err
}

// pods counts what a source answers.
type pods struct {
	source   podsource.Source
	observer Observer
}

// Pod asks the source.
func (p pods) Pod(ctx context.Context, ref podsource.Ref) (interception.Pod, error) {
	pod, err := p.source.Pod(ctx, ref)
	p.observer.Request("pod", outcome(err))
	return pod, err
}

func outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, podsource.ErrNotFound):
		return "not-found"
	case errors.Is(err, podsource.ErrStalePod):
		return "stale"
	case errors.Is(err, podsource.ErrNotReady):
		return "not-ready"
	}
	return "failed"
}
