// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
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

// StatusRequest is the request's name for the [Observer] when a plugin asks for the agent's status.
const StatusRequest = "status"

// Observer counts what happens.
type Observer interface {
	// Result receives the result of a plugin's command.
	Result(result podsource.Result)
	// Request receives the outcome of a request at a socket. Both arguments have few values.
	Request(request, outcome string)
}

// Pods knows the pods of the node.
type Pods interface {
	podsource.Source
	// Unready returns why no pod is known now; empty if pods are known.
	Unready() string
}

// Agent has the parts. All fields but Pods must be set before they run.
type Agent struct {
	// RunDir is the directory of the sockets, and of what plugins keep while there is no socket. It
	// is created if it is missing.
	RunDir string
	// Version is the daemon's own.
	Version string
	// Log receives plugins' lines, and the agent's own.
	Log *slog.Logger
	// Now is the clock.
	Now      func() time.Time
	Observer Observer
	// Pods answers for pods. If it is nil, no pods are watched, and plugins ask the API server.
	Pods Pods
	// Instance distinguishes this process from others that listen in the same place, or did. It is
	// in each answer.
	Instance string
	// Keeps reports whether this daemon keeps the node: then the sockets are this agent's, even if
	// another program has replaced them.
	Keeps func() bool
	// Kept signals whenever this daemon has taken the node, the first time and again.
	Kept <-chan struct{}
	// Restart ends the part of that name and starts it again.
	Restart func(part, why string)

	listening sync.Map // names of the parts that listen
}

// runDirMode gives root's group read access, and other users none.
const runDirMode = 0o750

// server serves on a socket until ctx ends.
type server interface {
	Serve(ctx context.Context, listener net.Listener) error
}

// serving returns a part that creates a socket in the run directory, and serves there.
func (a *Agent) serving(s socket, server server) parts.Part {
	return parts.Part{Name: s.part, Check: a.check(s), Run: func(ctx context.Context, say func(string)) error {
		if err := os.MkdirAll(a.RunDir, runDirMode); err != nil {
			return fmt.Errorf("make the run directory: %w", err)
		}
		listener, err := s.listen(ctx, a.RunDir)
		if err != nil {
			return err
		}
		a.listening.Store(s.part, true)
		defer a.listening.Delete(s.part)
		say("")
		return server.Serve(ctx, listener)
	}}
}

// Socket returns the part that serves the agent's own protocol.
func (a *Agent) Socket() parts.Part {
	server := agentserver.Server{
		Logs: a.logs("logs"), Results: counted[[]podsource.Result]{"results", results{a.Log, a.Observer}.Report, a.Observer},
		Status: a, OnError: a.failed, Instance: a.Instance,
	}
	if a.Pods != nil {
		server.Pods = pods{a.Pods, a.Observer}
	}
	return a.serving(agentSocket(), server)
}

// IstioLog returns the part that serves Istio's protocol for log lines.
func (a *Agent) IstioLog() parts.Part {
	return a.serving(istioLogSocket(), agentserver.IstioLogServer{Logs: a.logs("istio-logs"), OnError: a.failed, Instance: a.Instance})
}

// Status returns whether plugins can ask for any pod.
func (a *Agent) Status(context.Context) (podsource.AgentStatus, error) {
	a.Observer.Request(StatusRequest, "ok")
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

// failed logs what cannot be reported to a plugin.
func (a *Agent) failed(err error) {
	if peer := (*podsource.PeerError)(nil); errors.As(err, &peer) {
		a.Observer.Request("any", "refused")
	}
	a.Log.Warn("a request at the agent's sockets", "error", err)
}

type counted[T any] struct {
	request  string
	take     func(context.Context, T) error
	observer Observer
}

func (c counted[T]) Log(ctx context.Context, all T) error { return c.count(ctx, all) }

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

// results counts the results of plugins' commands. The plugin has logged them already, so here they
// are logged for debugging only.
type results struct {
	log      *slog.Logger
	observer Observer
}

func (r results) Report(_ context.Context, all []podsource.Result) error {
	for _, result := range all {
		r.observer.Result(result)
		attributes := []any{
			"command", result.Command, "pod", result.Namespace + "/" + result.Name, "container", result.ContainerID,
			"captured", result.Captured, "reason", string(result.Reason), "source", result.Source, "stages", result.Stages,
		}
		if result.Error != nil {
			attributes = append(attributes, "error", result.Error.Message, "code", result.Error.Code)
		}
		r.log.Debug("a command of the plugin has ended", attributes...)
	}
	return nil
}
