// SPDX-License-Identifier: Apache-2.0

package agentserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/interception/podsource/internal/protocol"
)

// LogSink takes lines of plugins' logs.
type LogSink interface {
	Log(ctx context.Context, entries []podsource.LogEntry) error
}

// ResultSink takes results of plugins.
type ResultSink interface {
	Report(ctx context.Context, results []podsource.Result) error
}

// StatusSource says how the agent is doing.
type StatusSource interface {
	Status(ctx context.Context) (podsource.AgentStatus, error)
}

// Server is the agent's side of the protocol in docs/agent-socket.md. What is nil is not served,
// and clients are told so.
type Server struct {
	// Pods answers for GET /v1/pods/{namespace}/{name}. The UID that was asked for is compared here,
	// too.
	Pods podsource.Source
	// Logs takes what comes by POST /v1/logs.
	Logs LogSink
	// Results takes what comes by POST /v1/results. Lines of a log that come with them go to Logs.
	Results ResultSink
	// Status answers for GET /v1/status.
	Status StatusSource
	// OnError, if not nil, is told what no client can be told, or what the agent should know as well:
	// a refused peer, a source or sink that failed. It is called from several goroutines at once.
	OnError func(error)
	// Instance, unless it is empty, is in the header [InstanceHeader] of each answer.
	Instance string
}

// Serve answers on a listener, such as [Listen] makes, until ctx ends; then it waits up to 2 s for
// requests that are under way, closes the listener and returns nil. It returns earlier, with an
// error, when the listener fails.
//
// Peers are root or this process's user; others are refused. At most 512 connections are open at
// once; others wait. One without a request is closed: a new one after 2 s, another 5 s after its
// last answer. A request has at most 8 KiB of header and 1 MiB of body, and 5 s to arrive.
func (s Server) Serve(ctx context.Context, listener net.Listener) error {
	return socketServer{s.handler(), s.report, s.Instance}.serve(ctx, listener)
}

func (s Server) report(err error) {
	if s.OnError != nil {
		s.OnError(err)
	}
}

func (s Server) handler() http.Handler {
	var mux http.ServeMux
	for _, route := range []struct {
		method, path string
		served       bool
		handle       func(*http.Request) (answer any, failure *requestError)
	}{
		{http.MethodGet, protocol.PodsPath + "/{namespace}/{name}", s.Pods != nil, s.pod},
		{http.MethodGet, protocol.StatusPath, s.Status != nil, s.status},
		{http.MethodPost, protocol.LogsPath, s.Logs != nil, s.logs},
		{http.MethodPost, protocol.ResultsPath, s.Results != nil, s.results},
	} {
		handle := route.handle
		if !route.served {
			handle = func(*http.Request) (any, *requestError) {
				return nil, refuse(http.StatusNotImplemented, protocol.ReasonNotServed, "this agent does not offer that")
			}
		}
		mux.Handle(route.method+" "+route.path, s.answering(handle))
		mux.Handle(route.path, s.answering(func(*http.Request) (any, *requestError) {
			return nil, refuse(http.StatusMethodNotAllowed, protocol.ReasonMethod, "use "+route.method)
		}))
	}
	mux.Handle("/", s.answering(unknownPath))
	return &mux
}

// unknownPath distinguishes another version of the protocol from what no version has.
func unknownPath(r *http.Request) (any, *requestError) {
	first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if number, found := strings.CutPrefix(first, "v"); first != protocol.Version && found && strings.Trim(number, "0123456789") == "" {
		failure := refuse(http.StatusNotFound, protocol.ReasonVersion, "this agent does not speak that version of the protocol")
		failure.refusal.Versions = []string{protocol.Version}
		return nil, failure
	}
	return nil, refuse(http.StatusNotFound, protocol.ReasonPath, "this version of the protocol has no such path")
}

func (s Server) pod(r *http.Request) (any, *requestError) {
	ref := podsource.Ref{Namespace: r.PathValue("namespace"), Name: r.PathValue("name"), UID: r.URL.Query().Get("uid")}
	if err := ref.Validate(); err != nil {
		return nil, refuse(http.StatusBadRequest, protocol.ReasonBadRequest, err.Error())
	}
	pod, err := s.Pods.Pod(r.Context(), ref)
	switch {
	case errors.Is(err, podsource.ErrRef):
		return nil, refuse(http.StatusBadRequest, protocol.ReasonBadRequest, err.Error())
	case errors.Is(err, podsource.ErrNotFound):
		return nil, refuse(http.StatusNotFound, protocol.ReasonNotFound, err.Error())
	case errors.Is(err, podsource.ErrStalePod):
		return nil, refuse(http.StatusConflict, protocol.ReasonStale, err.Error())
	case errors.Is(err, podsource.ErrNotReady):
		return nil, refuse(http.StatusServiceUnavailable, protocol.ReasonNotReady, err.Error())
	case err != nil:
		return nil, failed(err)
	case !ref.Is(pod.UID, pod.Annotations):
		return nil, refuse(http.StatusConflict, protocol.ReasonStale, "the pod of that name has UID "+pod.UID)
	}
	return protocol.PodAnswer{Pod: &pod}, nil
}

func (s Server) status(r *http.Request) (any, *requestError) {
	status, err := s.Status.Status(r.Context())
	if err != nil {
		return nil, failed(err)
	}
	return status, nil
}

func (s Server) logs(r *http.Request) (any, *requestError) {
	var body struct{ Entries []podsource.LogEntry }
	if failure := decodeBody(r, &body); failure != nil {
		return nil, failure
	}
	if err := s.Logs.Log(r.Context(), body.Entries); err != nil {
		return nil, failed(err)
	}
	return nil, nil //nolint:nilnil // the request has no error and no answer
}

func (s Server) results(r *http.Request) (any, *requestError) {
	var body struct {
		Results []podsource.Result
		Entries []podsource.LogEntry
	}
	if failure := decodeBody(r, &body); failure != nil {
		return nil, failure
	}
	if err := s.Results.Report(r.Context(), body.Results); err != nil {
		return nil, failed(err)
	}
	if len(body.Entries) == 0 || s.Logs == nil {
		return nil, nil //nolint:nilnil // the request has no error and no answer
	}
	if err := s.Logs.Log(r.Context(), body.Entries); err != nil {
		s.report(fmt.Errorf("%s %s: %w", r.Method, protocol.Quoted(r.URL.Path), err))
		return nil, nil //nolint:nilnil // the results are stored; the client keeps the lines
	}
	return protocol.ResultsAnswer{Entries: len(body.Entries)}, nil
}

// boundedListener bounds how many connections are open at once.
type boundedListener struct {
	net.Listener
	places chan struct{} // one element for each open connection
	closed chan struct{}
	close  func()
}

func newBoundedListener(l net.Listener, most int) *boundedListener {
	closed := make(chan struct{})
	return &boundedListener{l, make(chan struct{}, most), closed, sync.OnceFunc(func() { close(closed) })}
}

// Accept waits for a place, then for a connection.
func (l *boundedListener) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	connection, err := l.Listener.Accept()
	if err != nil {
		<-l.places
	}
	return connection, err
}

// free takes back the place of a connection that was closed, for [http.Server].ConnState.
func (l *boundedListener) free(_ net.Conn, state http.ConnState) {
	if state == http.StateClosed {
		<-l.places
	}
}

// Close ends Accept too.
func (l *boundedListener) Close() error {
	l.close()
	return l.Listener.Close()
}
