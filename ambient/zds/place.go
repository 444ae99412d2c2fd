// SPDX-License-Identifier: Apache-2.0

package zds

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/unixsocket"
)

// lookEvery is the time between two looks at the socket's path. Each look wakes an idle process. A
// proxy that starts meanwhile finds no socket there, or another program's, and tries again by
// itself.
const lookEvery = 10 * time.Second

// listenAt makes the socket and listens on it. It also returns which file the socket is; nil if
// another program has removed it already.
func listenAt(ctx context.Context, path string) (*net.UnixListener, fs.FileInfo, error) {
	listener, err := unixsocket.Listen(ctx, "unixpacket", path)
	if err != nil {
		return nil, nil, err
	}
	packets, ok := listener.(*net.UnixListener)
	if !ok {
		return nil, nil, errors.Join(fmt.Errorf("listen on %s: %w", path, interception.ErrUnsupported), listener.Close())
	}
	file, _ := os.Lstat(path) // without it, the server listens again at its next look
	return packets, file, nil
}

// awaitTaken looks at the path again and again until another program has removed the socket or put
// something in its place, and the server listens there again. It returns the new listener, or nil
// if the context has ended. From then on the path may be a later server's.
func (s *Server) awaitTaken(ctx context.Context) *net.UnixListener {
	ticker := time.NewTicker(s.look)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return nil
		}
		if listener := s.regain(ctx); listener != nil {
			return listener
		}
	}
}

// regain looks at the path once. If the socket is not there any more, it listens there again and
// returns the new listener, else nil.
func (s *Server) regain(ctx context.Context) *net.UnixListener {
	there, err := os.Lstat(s.path)
	// No other file has the number of the socket's inode, which the listener keeps in use.
	if err == nil && os.SameFile(there, s.file) {
		s.setTaken(nil)
		return nil
	}
	const taken = "another program has removed or replaced the proxy's socket"
	listener, file, err := listenAt(ctx, s.path)
	if err != nil {
		err = fmt.Errorf("%s, and no proxy can connect: %w; see that a socket can be made there: the server tries again every %s",
			taken, err, s.look)
		if s.setTaken(err) {
			s.options.Observe(Event{Err: err})
		}
		return nil
	}
	s.file = file
	s.setTaken(nil)
	s.options.Observe(Event{Err: fmt.Errorf("%s: the server listens on %s again; if this happens often, find that program", taken, s.path)})
	return listener
}

// setTaken notes why the server cannot listen at the path; nil if it does. It reports whether the
// server listened there before.
func (s *Server) setTaken(err error) (listened bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	listened, s.taken = s.taken == nil, err
	return listened
}
