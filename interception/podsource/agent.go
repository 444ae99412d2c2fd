// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podsource/internal/protocol"
	"github.com/meshcni/meshcni/internal/unixsocket"
)

// The defaults of [Agent].
const (
	defaultAgentTimeout     = 5 * time.Second
	defaultAgentCallTimeout = 2 * time.Second
)

// Agent talks to the node agent on this node, over the unix socket [AgentSocket] in its run
// directory. The protocol is in docs/agent-socket.md. The program that listens there must be
// root's, or of this process's user; Agent sends nothing to any other. The errors are [*Error].
//
// It needs Linux; elsewhere the errors wrap [interception.ErrUnsupported].
type Agent struct {
	// RunDir is the agent's run directory, such as /var/run/istio-cni.
	RunDir string
	// Timeout is how long a call of Pod takes at most, retries and pauses included; 5 s when 0.
	Timeout time.Duration
	// CallTimeout is how long each single request takes at most; 2 s when 0.
	CallTimeout time.Duration
	// Backoff says how long to wait after the given number of failures, the first being 1. When nil,
	// pauses start at 100 ms, double up to 3 s, and vary by a fifth so that the pods of a node don't
	// ask all at once.
	Backoff func(failures int) time.Duration
	// Kept keeps the connection of one call for the next. When nil, each request has its own
	// connection.
	Kept *AgentConnection
	// Once makes Pod ask only once, and leave retries to the caller.
	Once bool
}

// Pod returns the pod that ref names.
//
// Pod asks again after a failure that may pass by itself. It asks up to 4 times when the agent
// knows no such pod, or one with another UID, because the agent's view of the cluster may be out of
// date; up to 3 times when no program accepts connections, or the agent fails; twice when the agent
// is too slow (a request beyond CallTimeout). Any other failure is returned at once. So is a
// missing socket: then there is no agent to wait for.
func (a Agent) Pod(ctx context.Context, ref Ref) (interception.Pod, error) {
	if err := ref.Validate(); err != nil {
		return interception.Pod{}, &Error{Kind: ErrRef, Source: sourceAgent, Pod: ref, Cause: err}
	}
	ctx, cancel := withTimeout(ctx, cmp.Or(a.Timeout, defaultAgentTimeout), "in all")
	defer cancel()
	path, attempts, answer := protocol.PodsPath+"/"+ref.Namespace+"/"+ref.Name, 0, protocol.PodAnswer{}
	if ref.UID != "" {
		path += "?" + url.Values{"uid": {ref.UID}}.Encode()
	}
	failure := retry{a.patience(), a.Backoff}.run(ctx, func(ctx context.Context) *Error {
		attempts, answer = attempts+1, protocol.PodAnswer{}
		if failure := a.call(ctx, http.MethodGet, path, nil, &answer); failure != nil {
			return failure
		}
		return wrongPod(answer, ref)
	})
	if failure != nil {
		failure.Source, failure.Server, failure.Pod, failure.Attempts = sourceAgent, a.client().server(), ref, attempts
		return interception.Pod{}, failure
	}
	return *answer.Pod, nil
}

// Status asks how the agent is doing, once.
func (a Agent) Status(ctx context.Context) (AgentStatus, error) {
	var status AgentStatus
	if failure := a.call(ctx, http.MethodGet, protocol.StatusPath, nil, &status); failure != nil {
		return AgentStatus{}, failure
	}
	return status, nil
}

// Report sends results to the agent, once. They may have 1 MiB as JSON, all together.
func (a Agent) Report(ctx context.Context, results []Result) error {
	if failure := a.call(ctx, http.MethodPost, protocol.ResultsPath, resultsRequest{Results: listed(results)}, nil); failure != nil {
		return failure
	}
	return nil
}

// Log sends lines of a log to the agent, once. They may have 1 MiB as JSON, all together. An agent
// that doesn't take them by this protocol, because it is older or Istio's own, gets them by
// Istio's: on the socket log.sock, with no levels but debug, info, warn and error. An error is then
// about both attempts.
func (a Agent) Log(ctx context.Context, entries []LogEntry) error {
	failure := a.call(ctx, http.MethodPost, protocol.LogsPath, logsRequest{listed(entries)}, nil)
	if failure == nil {
		return nil
	}
	if isAny(failure.Kind, ErrUnreachable, ErrProtocol) {
		return a.logAsIstio(ctx, entries, failure)
	}
	return failure
}

// Tell sends results and lines of a log: in one request if the agent takes both that way, and
// otherwise as Report and Log do. It returns an error for each.
func (a Agent) Tell(ctx context.Context, results []Result, entries []LogEntry) (reported, logged error) {
	var answer protocol.ResultsAnswer
	if failure := a.call(ctx, http.MethodPost, protocol.ResultsPath, resultsRequest{listed(results), entries}, &answer); failure != nil {
		reported = failure
	}
	if answer.Entries != len(entries) { // an older agent doesn't say that it takes lines
		logged = a.Log(ctx, entries)
	}
	return reported, logged
}

func (a Agent) call(ctx context.Context, method, path string, body, answer any) *Error {
	ctx, cancel := withTimeout(ctx, cmp.Or(a.CallTimeout, defaultAgentCallTimeout), "for one request")
	defer cancel()
	return a.client().call(ctx, method, path, body, answer)
}

func (a Agent) client() socketClient {
	return socketClient{filepath.Join(a.RunDir, AgentSocket), a.Kept}
}

func (a Agent) patience() func(*Error) int {
	if a.Once {
		return func(*Error) int { return 1 }
	}
	return patienceWithAgent
}

// patienceWithAgent is short: there usually is another source after the agent.
func patienceWithAgent(failure *Error) int {
	switch kind := failure.Kind; {
	case failure.isMissing():
		return 1
	case isAny(kind, ErrNotFound, ErrStalePod):
		return 4
	case isAny(kind, ErrUnreachable, ErrServer):
		return 3
	case isAny(kind, ErrTimeout):
		return 2
	default:
		return 1
	}
}

// AgentConnection keeps a connection to a node agent open between the calls of an [Agent], so that
// a program that asks and then reports connects once. If the agent has closed it meanwhile, the
// next call connects anew. The zero AgentConnection keeps none yet. It is safe for concurrent use
// by Agents of one run directory; calls at the same time have a connection each, of which one is
// kept.
type AgentConnection struct{ idle atomic.Pointer[wire] }

// Close closes the connection if one is kept.
func (c *AgentConnection) Close() error {
	if w := c.take(); w != nil {
		return w.Close()
	}
	return nil
}

// take returns nil if no connection is kept.
func (c *AgentConnection) take() *wire {
	if c == nil {
		return nil
	}
	return c.idle.Swap(nil)
}

// keep reports whether the connection is kept; otherwise the caller still owns it.
func (c *AgentConnection) keep(w *wire) bool { return c != nil && c.idle.CompareAndSwap(nil, w) }

// PeerError means that the process at the other end of a unix socket is neither root's nor of this
// process's user.
type PeerError = unixsocket.PeerError

// CheckPeer accepts the process at the other end of a unix socket if it is root's, or of this
// process's user: both may do all that this process may. Any other process is a [*PeerError].
// CheckPeer asks the kernel which user connected, or began to listen (SO_PEERCRED, unix(7)).
func CheckPeer(connection net.Conn) error { return unixsocket.CheckPeer(connection) }
