// SPDX-License-Identifier: Apache-2.0

package agentserver

import (
	"context"
	"errors"
	"fmt"
	"log" //nolint:depguard // net/http passes its errors only to a log.Logger
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/internal/spool"
	"github.com/meshcni/meshcni/internal/unixsocket"
)

// Bounds of the server. A peer that is slower than that, or sends more, loses its connection.
const (
	maxRequestHeader = 8 << 10
	maxConnections   = 512
	readHeaderWithin = 2 * time.Second
	readWithin       = 5 * time.Second
	idleWithin       = 5 * time.Second // between two requests: a plugin reports at the end of its ADD
	workWithin       = 5 * time.Second
	writeWithin      = 15 * time.Second // from the end of the request's header on
	shutDownWithin   = 2 * time.Second
)

// InstanceHeader is the header by which a client tells an agent from the next one on the same
// socket.
const InstanceHeader = "Agent-Instance"

// errTooLong is the cause when the time for a request is over.
var errTooLong = fmt.Errorf("the request took longer than %v: %w", workWithin, context.DeadlineExceeded)

// socketServer answers on a unix socket, within bounds.
type socketServer struct {
	handler  http.Handler
	report   func(error)
	instance string
}

// ServeHTTP names the instance in each answer. A peer that is refused loses its connection.
func (s socketServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.instance != "" {
		w.Header().Set(InstanceHeader, s.instance)
	}
	if refusedPeer(r.Context()) != nil {
		w.Header().Set("Connection", "close")
	}
	s.handler.ServeHTTP(w, r)
}

func (s socketServer) serve(ctx context.Context, listener net.Listener) error {
	bounded := newBoundedListener(listener, maxConnections)
	server := s.server(context.WithoutCancel(ctx)) // requests that are under way outlive ctx
	server.ConnState = bounded.free
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutDownWithin)
		defer cancel()
		if err := server.Shutdown(last); err != nil {
			err = errors.Join(err, server.Close())
			s.report(fmt.Errorf("requests were cut off: %w", err))
		}
		stopped <- nil
	})
	err := server.Serve(bounded)
	if stop() { // ctx has not ended
		return fmt.Errorf("serve on %s: %w", listener.Addr(), err)
	}
	return <-stopped
}

func (s socketServer) server(ctx context.Context) *http.Server {
	return &http.Server{
		Handler:     s,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, peerKey{}, podsource.CheckPeer(c))
		},
		ReadHeaderTimeout: readHeaderWithin, ReadTimeout: readWithin, WriteTimeout: writeWithin, IdleTimeout: idleWithin,
		MaxHeaderBytes: maxRequestHeader,
		ErrorLog:       log.New(errorWriter{s.report}, "", 0), //nolint:forbidigo // the lines go to OnError
	}
}

// peerKey is the key of [podsource.CheckPeer]'s error in a connection's context.
type peerKey struct{}

// errorWriter takes net/http's own errors: panics, and connections that broke.
type errorWriter struct{ report func(error) }

func (w errorWriter) Write(p []byte) (int, error) {
	w.report(errors.New(strings.TrimSpace(string(p))))
	return len(p), nil
}

// Listen makes the socket [podsource.AgentSocket] in the agent's run directory, and listens there,
// for [Server]. Only its owner may connect (mode 0600), from the first instant.
//
// The directory must exist, belong to root or to this process's user, and be writable by no other
// user. A socket that is there already is replaced, with no instant in which there is none: an
// earlier agent left it, or still listens there and is being replaced. Anything else of that name
// stays, and is an error; a symbolic link is never followed. Closing the listener leaves the file,
// which may be a later agent's by then. Listen needs Linux.
func Listen(ctx context.Context, runDir string) (net.Listener, error) {
	return unixsocket.Listen(ctx, "unix", filepath.Join(runDir, podsource.AgentSocket))
}

// ListenIstioLog makes the socket log.sock, where Istio's node agent takes log lines, for
// [IstioLogServer], in the same way.
func ListenIstioLog(ctx context.Context, runDir string) (net.Listener, error) {
	return unixsocket.Listen(ctx, "unix", filepath.Join(runDir, spool.IstioLogSocket))
}
