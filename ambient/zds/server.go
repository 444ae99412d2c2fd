// SPDX-License-Identifier: Apache-2.0

package zds

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/meshcni/meshcni/interception"
)

// Options are the settings of a [Server]. The zero value is usable.
type Options struct {
	// Timeout is how long a proxy may take for its hello, to receive a request, and to acknowledge
	// one; 5 s if zero. A proxy that takes longer is disconnected, because a late answer would be
	// taken for that to the next request. When it connects again, the pod that it has left unanswered
	// comes last.
	Timeout time.Duration
	// Again is the time after which a pod that the proxy has refused is sent again; 1 s if zero. The
	// proxy goes on trying by itself, and does not say when it succeeds.
	Again time.Duration
	// Observe is called for each [Event], from several goroutines. It may be nil.
	Observe func(Event)
}

const (
	defaultTimeout = 5 * time.Second
	defaultAgain   = time.Second
	pause          = 100 * time.Millisecond // after a connection that could not be accepted
	// between is the time between two connections that are accepted. Programs that connect over and
	// over again, and are no proxies, would otherwise keep the process busy.
	between = time.Millisecond
)

// Event is something that happened on a connection to a proxy, or to the socket.
type Event struct {
	// Connection numbers the connections in the order of their hellos, from 1. It is 0 for a
	// connection that ended without one.
	Connection int
	// Request is the request that was acknowledged or refused; zero if the event is about the
	// connection.
	Request Request
	// Hello is the proxy's, for the event that begins the connection; else nil.
	Hello *Hello
	// Err is why a request was refused or a connection ended, or that the socket was not at its path;
	// nil for what went well.
	Err error
}

// Server brings the proxies that connect to a socket to serve the pods that the caller sets. Its
// methods may be called concurrently.
type Server struct {
	options  Options
	path     string
	listener *net.UnixListener // the first one
	file     fs.FileInfo       // the socket that was made last
	look     time.Duration     // between two looks at the path

	mu      sync.Mutex
	pods    map[string]pod // by UID
	numbers uint64         // of the last change
	changed chan struct{}  // closed at the next change of anything below mu
	live    []*connection  // those that said hello, oldest first
	hellos  int            // how many there have been
	lost    time.Time      // when the last one ended
	ended   error          // why a connection ended last, with or without a hello
	taken   error          // why the server cannot listen at its path; nil if it does
}

// pod is what the caller set.
type pod struct {
	workload  Workload
	namespace *interception.Netns
	number    uint64 // of the change that set it
	hung      uint64 // of the change that noted a proxy without an answer to it; 0 if one has acknowledged it since
}

// compare compares pods by which is to be sent first. Those that have hung a proxy come last, and
// the one of them that has done so most recently at the end: no pod keeps another one waiting for
// ever.
func (p pod) compare(other pod) int {
	return cmp.Or(cmp.Compare(p.hung, other.hung), cmp.Compare(p.number, other.number))
}

// Listen makes the socket and listens on it. Only root and this process's own user can connect. The
// directory must exist, belong to one of them, and be writable by no other user. A socket that is
// there already is replaced at once. On systems other than Linux the error wraps
// [interception.ErrUnsupported].
func Listen(ctx context.Context, path string, o Options) (*Server, error) {
	listener, file, err := listenAt(ctx, path)
	if err != nil {
		return nil, err
	}
	o.Timeout, o.Again = cmp.Or(o.Timeout, defaultTimeout), cmp.Or(o.Again, defaultAgain)
	if o.Observe == nil {
		o.Observe = func(Event) {}
	}
	return &Server{
		options: o, path: path, listener: listener, file: file, look: lookEvery, pods: map[string]pod{}, changed: make(chan struct{}),
	}, nil
}

// Serve accepts proxies until the context ends, and then closes the socket and all connections. The
// socket's file stays, because it may be a later server's. Serve may be called once.
//
// If another program removes or replaces the file meanwhile, Serve notices that within 10 s, and
// listens there again. A later server of the path must therefore wait until Serve has returned.
func (s *Server) Serve(ctx context.Context) {
	var connections sync.WaitGroup
	defer connections.Wait()
	serve := func(accepted *net.UnixConn) { connections.Go(func() { s.serve(ctx, accepted) }) }
	for at := s.listener; at != nil; {
		listener := at
		accepting, end := context.WithCancel(ctx)
		connections.Go(func() { s.accept(accepting, listener, serve) })
		at = s.awaitTaken(ctx)
		end()
	}
}

// accept accepts proxies on a listener until the context ends, and closes the listener.
func (s *Server) accept(ctx context.Context, listener *net.UnixListener, serve func(*net.UnixConn)) {
	defer listener.Close()                                          //nolint:errcheck // the error would be that it is closed
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })() // likewise
	for {
		accepted, err := listener.AcceptUnix()
		next := time.After(between)
		switch {
		case err == nil:
			serve(accepted)
		case ctx.Err() != nil:
			return
		default: // such as too many open files, which other parts of the program may close
			s.options.Observe(Event{Err: fmt.Errorf("accept a proxy on %s: %w", s.path, err)})
			next = time.After(pause)
		}
		select {
		case <-next:
		case <-ctx.Done():
			return
		}
	}
}

// serve serves one connection until it or the context ends.
func (s *Server) serve(ctx context.Context, socket *net.UnixConn) {
	c := &connection{server: s, socket: socket, told: map[string]told{}}
	err := fmt.Errorf("connection to the proxy: %w", c.serve(ctx))
	s.leave(c, err)
	s.options.Observe(Event{Connection: c.number, Err: err})
}

// Set makes the proxies serve a pod. The newest connected proxy is sent the pod, and so is each one
// that connects later; [Server.Await] waits for that. The caller keeps the namespace open until it
// deletes the pod. Without a namespace (nil), which is right for a pod that is known to live, a
// proxy that connects goes on with the pod if it knows it.
//
// To set a pod again sends it again: a proxy that serves it acknowledges that without a change. The
// error wraps [ErrMessage] or [interception.ErrNotNetns], and then nothing has changed.
func (s *Server) Set(w Workload, namespace *interception.Netns) error {
	if w.UID == "" {
		return fmt.Errorf("%w: a pod without a UID", ErrMessage)
	}
	if _, err := (Request{KindAdd, w}).Marshal(); err != nil {
		return fmt.Errorf("pod %s: %w", w.UID, err)
	}
	if namespace != nil {
		if err := namespace.Check(); err != nil {
			return fmt.Errorf("network namespace of pod %s: %w", w.UID, err)
		}
		if namespace.File() == nil {
			return fmt.Errorf("network namespace of pod %s: %w", w.UID, interception.ErrNotNetns)
		}
	}
	s.change(func() { s.pods[w.UID] = pod{w, namespace, s.numbers, s.pods[w.UID].hung} })
	return nil
}

// Delete makes all proxies forget a pod, which ends its connections through them. An unknown UID
// changes nothing.
func (s *Server) Delete(uid string) { s.change(func() { delete(s.pods, uid) }) }

// change changes what mu guards, and wakes all that wait for a change.
func (s *Server) change(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.numbers++
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

// join makes a connection the newest.
func (s *Server) join(c *connection) {
	s.change(func() {
		s.hellos++
		c.number, c.since = s.hellos, time.Now()
		for uid := range s.pods {
			c.snapshot = append(c.snapshot, uid)
		}
		slices.SortFunc(c.snapshot, func(a, b string) int { return s.pods[a].compare(s.pods[b]) })
		s.live = append(s.live, c)
	})
}

// leave notes the end of a connection. No caller waits for one without a hello.
func (s *Server) leave(c *connection, err error) {
	if c.number == 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ended = err
		return
	}
	s.change(func() {
		s.ended, s.lost = err, time.Now()
		s.live = slices.DeleteFunc(s.live, func(other *connection) bool { return other == c })
	})
}

// newest returns the connection that pods are sent to, or nil.
func (s *Server) newest() *connection {
	if len(s.live) == 0 {
		return nil
	}
	return s.live[len(s.live)-1]
}

// Status says which proxies are connected to a server. It is zero until the first one connects.
type Status struct {
	// Connections is how many proxies are connected. During a rolling update of the proxy there are
	// two.
	Connections int
	// Connected is when the newest one of them said hello; zero if none is connected.
	Connected time.Time
	// Lost is when a connection ended last; zero if none has ended since its hello.
	Lost time.Time
	// Err is why no proxy can connect, as another program has taken the socket from its path and the
	// server cannot listen there again. Otherwise it is why a connection ended last, even if that was
	// before its hello; nil if none has ended.
	Err error
}

// Status says which proxies are connected to the server.
func (s *Server) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := Status{Connections: len(s.live), Lost: s.lost, Err: cmp.Or(s.taken, s.ended)}
	if newest := s.newest(); newest != nil {
		status.Connected = newest.since
	}
	return status
}
