// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"context"
	"net"
	"net/http"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// Source knows pods. An error that is [ErrNotFound], [ErrStalePod], [ErrRef] or [ErrNotReady] (errors.Is) says so, any other means that the
// source cannot tell now.
type Source interface {
	Pod(ctx context.Context, ref Ref) (interception.Pod, error)
}

// LogSink takes lines of plugins' logs.
type LogSink interface {
	Log(ctx context.Context, entries []LogEntry) error
}

// ResultSink takes results of plugins.
type ResultSink interface {
	Report(ctx context.Context, results []Result) error
}

// StatusSource says how the agent is doing.
type StatusSource interface {
	Status(ctx context.Context) (AgentStatus, error)
}

// AgentServer is the agent's side of the protocol in docs/agent-socket.md. What is nil is not served, and clients are told so.
type AgentServer struct {
	// Pods answers for GET /v1/pods/{namespace}/{name}. The UID that was asked for is compared here, too.
	Pods Source
	// Logs takes what comes by POST /v1/logs.
	Logs LogSink
	// Results takes what comes by POST /v1/results.
	Results ResultSink
	// Status answers for GET /v1/status.
	Status StatusSource
	// OnError, if not nil, is told what no client can be told, or should not be the only one to know: a refused peer, a source or sink
	// that failed. It is called from several goroutines at once.
	OnError func(error)
}

// Serve answers on the listener, such as [ListenAgent] makes it, until ctx ends; then it waits up to 2 s for requests that are under
// way, closes the listener and returns nil. It returns earlier, with an error, when the listener fails.
//
// Peers are root or this process's user; others are refused. At most 128 connections are open at once; others wait. A request has at
// most 8 KiB of header and 1 MiB of body, and 5 s to arrive.
func (s AgentServer) Serve(ctx context.Context, listener net.Listener) error {
	return socketServer{s.handler(), s.report}.serve(ctx, listener)
}

func (s AgentServer) report(err error) {
	if s.OnError != nil {
		s.OnError(err)
	}
}

func (s AgentServer) handler() http.Handler {
	var mux http.ServeMux
	for _, route := range []struct {
		method, path string
		served       bool
		handle       func(*http.Request) (answer any, failure *requestError)
	}{
		{http.MethodGet, podsPath + "/{namespace}/{name}", s.Pods != nil, s.pod},
		{http.MethodGet, statusPath, s.Status != nil, s.status},
		{http.MethodPost, logsPath, s.Logs != nil, s.logs},
		{http.MethodPost, resultsPath, s.Results != nil, s.results},
	} {
		handle := route.handle
		if !route.served {
			handle = func(*http.Request) (any, *requestError) {
				return nil, refuse(http.StatusNotImplemented, reasonNotServed, "this agent does not offer that")
			}
		}
		mux.Handle(route.method+" "+route.path, s.answering(handle))
		mux.Handle(route.path, s.answering(func(*http.Request) (any, *requestError) {
			return nil, refuse(http.StatusMethodNotAllowed, reasonMethod, "use "+route.method)
		}))
	}
	mux.Handle("/", s.answering(unknownPath))
	return &mux
}

// unknownPath tells another version of the protocol from what no version has.
func unknownPath(r *http.Request) (any, *requestError) {
	first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if number, found := strings.CutPrefix(first, "v"); first != protocolVersion && found && strings.Trim(number, "0123456789") == "" {
		failure := refuse(http.StatusNotFound, reasonVersion, "this agent does not speak that version of the protocol")
		failure.refusal.Versions = []string{protocolVersion}
		return nil, failure
	}
	return nil, refuse(http.StatusNotFound, reasonPath, "this version of the protocol has no such path")
}

func (s AgentServer) pod(r *http.Request) (any, *requestError) {
	ref := Ref{Namespace: r.PathValue("namespace"), Name: r.PathValue("name"), UID: r.URL.Query().Get("uid")}
	if err := ref.validate(); err != nil {
		return nil, refuse(http.StatusBadRequest, reasonBadRequest, err.Error())
	}
	pod, err := s.Pods.Pod(r.Context(), ref)
	switch {
	case isAny(err, ErrRef):
		return nil, refuse(http.StatusBadRequest, reasonBadRequest, err.Error())
	case isAny(err, ErrNotFound):
		return nil, refuse(http.StatusNotFound, reasonNotFound, err.Error())
	case isAny(err, ErrStalePod):
		return nil, refuse(http.StatusConflict, reasonStale, err.Error())
	case isAny(err, ErrNotReady):
		return nil, refuse(http.StatusServiceUnavailable, reasonNotReady, err.Error())
	case err != nil:
		return nil, failed(err)
	case !ref.isOf(pod.UID, pod.Annotations):
		return nil, refuse(http.StatusConflict, reasonStale, "the pod of that name has UID "+pod.UID)
	}
	return podAnswer{&pod}, nil
}

func (s AgentServer) status(r *http.Request) (any, *requestError) {
	status, err := s.Status.Status(r.Context())
	if err != nil {
		return nil, failed(err)
	}
	return status, nil
}

func (s AgentServer) logs(r *http.Request) (any, *requestError) {
	var body logsRequest
	if failure := decodeBody(r, &body); failure != nil {
		return nil, failure
	}
	if err := s.Logs.Log(r.Context(), body.Entries); err != nil {
		return nil, failed(err)
	}
	return nil, nil //nolint:nilnil // nothing to say
}

func (s AgentServer) results(r *http.Request) (any, *requestError) {
	var body resultsRequest
	if failure := decodeBody(r, &body); failure != nil {
		return nil, failure
	}
	if err := s.Results.Report(r.Context(), body.Results); err != nil {
		return nil, failed(err)
	}
	return nil, nil //nolint:nilnil // nothing to say
}
