// SPDX-License-Identifier: Apache-2.0

package zds

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// look is the time between two looks at the path in tests that wait for one.
const look = time.Millisecond

// TestSocketIsReplaced begins a second server in place of the first, which has served: the path
// stays the second one's.
func TestSocketIsReplaced(t *testing.T) {
	t.Parallel()
	o, events := observed()
	first := listen(t, o)
	first.look = look
	end := serve(t, first)
	info, err := os.Stat(first.path)
	if err != nil || info.Mode().Perm()&^0o600 != 0 {
		t.Errorf("the socket has mode %v, %v, want at most 0600", info.Mode(), err)
	}
	end()
	second, err := Listen(t.Context(), first.path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer second.listener.Close()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: first.path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	accepted, err := second.listener.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	_ = accepted.Close() // a test's
	if len(events) > 0 {
		t.Errorf("the first server says: %v", (<-events).Err)
	}
}

// TestSocketIsTaken has another program remove the socket, or put its own in its place, as Istio's
// node agent does: a proxy that connects later is served, and the one before stays connected.
func TestSocketIsTaken(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(t *testing.T, path string){
		"removed": func(t *testing.T, path string) {
			t.Helper()
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
		"replaced": func(t *testing.T, path string) {
			t.Helper()
			other, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path + "2", Net: "unixpacket"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = other.Close() }) // a test's
			if err := os.Rename(path+"2", path); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, events := observed()
			s := listen(t, o)
			s.look = look
			serve(t, s)
			before := connect(t, s)
			for range 2 {
				take(t, s.path)
				awaitTaken(t, events, "listens on "+s.path+" again")
			}
			after := connect(t, s)
			set(t, s, "a")
			after.take(KindAdd, "a")
			if err := after.Close(); err != nil {
				t.Fatal(err)
			}
			before.take(KindAdd, "a")
			if err := s.Await(t.Context(), "a"); err != nil {
				t.Error(err)
			}
		})
	}
}

// awaitTaken waits for an event about the socket with this text.
func awaitTaken(t *testing.T, events <-chan Event, text string) {
	t.Helper()
	for limit := time.After(time.Minute); ; {
		select {
		case e := <-events:
			if e.Connection == 0 && e.Err != nil && strings.Contains(e.Err.Error(), text) {
				return
			}
		case <-limit:
			t.Fatalf("no event has %q", text)
		}
	}
}

// TestSocketCannotBeMadeAgain has another program put something in the socket's place that the
// server must not remove: the status says so until the server listens again.
func TestSocketCannotBeMadeAgain(t *testing.T) {
	t.Parallel()
	o, events := observed()
	s := listen(t, o)
	if err := os.WriteFile(s.path+"2", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(s.path+"2", s.path); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if s.regain(t.Context()) != nil {
			t.Fatal("the server listens in the place of a file")
		}
	}
	err := s.Status().Err
	if err == nil || !strings.Contains(err.Error(), "removed or replaced the proxy's socket") || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("the status says %v", err)
	}
	if len(events) != 1 || (<-events).Err == nil {
		t.Errorf("%d more events, want one about the three looks", len(events))
	}
	if err := os.Remove(s.path); err != nil {
		t.Fatal(err)
	}
	listener := s.regain(t.Context())
	if listener == nil {
		t.Fatal("the server does not listen again")
	}
	defer listener.Close()
	awaitTaken(t, events, "again")
	if status := s.Status(); status != (Status{}) {
		t.Errorf("when the server listens again: %+v", status)
	}
	if s.regain(t.Context()) != nil {
		t.Error("the server replaces its own socket")
	}
}

// TestServerThatEndsLeavesThePath has a server end whose socket is gone: it does not make it again,
// as a later server may be about to.
func TestServerThatEndsLeavesThePath(t *testing.T) {
	t.Parallel()
	s := listen(t, Options{})
	s.look = time.Nanosecond // so that it is time to look when the server begins
	if err := os.Remove(s.path); err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	s.Serve(ended)
	if _, err := os.Lstat(s.path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the path has a file again: %v", err)
	}
}
