// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/meshcni/meshcni/internal/unixsocket"
)

// The bounds of a server.
const (
	maxConnections  = 16 // at once; others wait
	maxAnnotations  = 8  // at once, for each agent
	annotateWithin  = 30 * time.Second
	pauseOfAccept   = 100 * time.Millisecond // after a connection that could not be accepted
	defaultPatience = 10 * time.Second
)

// ServerOptions are what a [Server] works with. Source and Annotator are required.
type ServerOptions struct {
	// Source tells of the pods. What it has told must not change any more.
	Source Source
	// Annotator gets the agents' requests.
	Annotator Annotator
	// Timeout is how long an agent may take for its hello, and to receive a message; 10 s if zero. One
	// that takes longer is disconnected, and may connect again.
	Timeout time.Duration
	// Observe is called for each [Event], from several goroutines. It may be nil.
	Observe func(Event)
}

// Server feeds the agents that connect to its socket. During a rolling update there are two. Create
// it with [Listen].
type Server struct {
	options  ServerOptions
	path     string
	listener net.Listener
	view     *view
	turns    turns
	numbers  atomic.Int64 // of the last connection
}

// Listen makes the socket and listens on it. Only root and this process's own user can connect. The
// directory must exist, belong to one of them, and be writable by no other user. A socket that is
// there already is replaced at once; the agents that are connected to it stay with their server
// until that ends. On systems other than Linux the error wraps [interception.ErrUnsupported].
func Listen(ctx context.Context, path string, o ServerOptions) (*Server, error) {
	if o.Source == nil || o.Annotator == nil {
		return nil, errors.New("server of the feed: options without Source or Annotator")
	}
	listener, err := unixsocket.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	o.Timeout = cmp.Or(o.Timeout, defaultPatience)
	if o.Observe == nil {
		o.Observe = func(Event) {}
	}
	return &Server{options: o, path: path, listener: listener, view: newView()}, nil
}

// Serve serves agents until the context ends or the source fails, and returns why. Then it closes
// the socket and all connections. The socket's file stays, because it may be a later server's.
// Serve may be called once.
func (s *Server) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var parts sync.WaitGroup
	parts.Go(func() { cancel(s.follow(ctx)) })
	stop := context.AfterFunc(ctx, func() { _ = s.listener.Close() }) // the error would be that it is closed
	s.accept(ctx, &parts)
	stop()
	parts.Wait()
	return context.Cause(ctx)
}

// follow takes over what the source tells. The error says why it ended.
func (s *Server) follow(ctx context.Context) error {
	for {
		change, err := s.options.Source.Next(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("source of the feed: %w", err)
		}
		for key, err := range s.view.learn(change) {
			uid, name, isNamespace := strings.Cut(key, "/")
			if isNamespace {
				err = fmt.Errorf("namespace %q: %w", bounded(name), err)
			}
			s.options.Observe(Event{Kind: NotTold, UID: uid, Err: err})
		}
	}
}

// accept accepts agents until the context ends.
func (s *Server) accept(ctx context.Context, connections *sync.WaitGroup) {
	places := make(chan struct{}, maxConnections)
	for {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		socket, err := s.listener.Accept()
		if ctx.Err() != nil {
			return
		}
		if err != nil { // such as too many open files, which other parts of the program may close
			s.options.Observe(Event{Kind: Disconnected, Err: fmt.Errorf("accept an agent on %s: %w", s.path, err)})
			<-places
			select {
			case <-time.After(pauseOfAccept):
			case <-ctx.Done():
			}
			continue
		}
		connections.Go(func() {
			defer func() { <-places }()
			c := &connection{server: s, socket: socket, number: int(s.numbers.Add(1)), audience: newAudience()}
			err := c.serve(ctx)
			if ctx.Err() != nil {
				err = context.Cause(ctx) // and not that the socket is closed
			}
			s.options.Observe(Event{Kind: Disconnected, Connection: c.number, Err: fmt.Errorf("connection to the agent: %w", err)})
		})
	}
}
