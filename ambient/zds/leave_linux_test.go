// SPDX-License-Identifier: Apache-2.0

package zds

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// observed returns options for a server whose events a test awaits.
func observed() (Options, <-chan Event) {
	events := make(chan Event, 1000)
	return Options{Observe: func(e Event) { events <- e }}, events
}

// TestProxyThatReadsNoMore has the newest proxy close the direction that the agent sends in, and
// nothing else: the agent cannot send, ends the connection, and sends to the proxy before.
func TestProxyThatReadsNoMore(t *testing.T) {
	t.Parallel()
	o, events := observed()
	s := begin(t, o)
	before := connect(t, s)
	deaf := connect(t, s)
	if err := deaf.CloseRead(); err != nil {
		t.Fatal(err)
	}
	set(t, s, "a")
	before.take(KindAdd, "a")
	if err := s.Await(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	for e := range events {
		if e.Err == nil {
			continue
		}
		if e.Connection != 2 || !strings.Contains(e.Err.Error(), "send add") {
			t.Errorf("connection %d: %v, want that the pod cannot be sent on the second", e.Connection, e.Err)
		}
		break
	}
	deaf.expectEnd()
}

// TestDeleteWhileAProxyLeaves has a proxy leave instead of forgetting a pod: the caller does not
// wait for its answer. The other one still has to forget the pod.
func TestDeleteWhileAProxyLeaves(t *testing.T) {
	t.Parallel()
	s := begin(t, Options{})
	set(t, s, "a")
	stays := connect(t, s, "a")
	leaves := connect(t, s, "a")
	forgotten := make(chan error, 1)
	s.Delete("a")
	go func() { forgotten <- s.Await(context.WithoutCancel(t.Context()), "a") }()
	leaves.expect(KindDel, "a")
	stays.expect(KindDel, "a")
	if err := leaves.Close(); err != nil {
		t.Fatal(err)
	}
	awaitConnections(s, 1)
	if wrong := await(s, "a"); wrong == nil {
		t.Error("the pod counts as forgotten, and a proxy has not answered")
	}
	stays.ack("")
	if err := <-forgotten; err != nil {
		t.Error(err)
	}
	s.Delete("a") // once more, of which no proxy has to be told
	if err := s.Await(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

// TestDeleteAsTheOnlyProxyLeaves has no proxy remain: the pod is forgotten.
func TestDeleteAsTheOnlyProxyLeaves(t *testing.T) {
	t.Parallel()
	s := begin(t, Options{})
	set(t, s, "a")
	p := connect(t, s, "a")
	s.Delete("a")
	p.expect(KindDel, "a")
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Await(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	connect(t, s) // and nothing of the pod
}

// TestThreeProxies closes the newest connection twice: pods are sent to the one before each time.
// A deleted pod is forgotten by all that are left.
func TestThreeProxies(t *testing.T) {
	t.Parallel()
	s := begin(t, Options{})
	set(t, s, "a")
	first, second, third := connect(t, s, "a"), connect(t, s, "a"), connect(t, s, "a")
	set(t, s, "b")
	third.take(KindAdd, "b")
	if err := third.Close(); err != nil {
		t.Fatal(err)
	}
	second.take(KindAdd, "b")
	s.Delete("a")
	second.take(KindDel, "a")
	first.take(KindDel, "a")
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	first.take(KindAdd, "b")
	for _, uid := range []string{"a", "b"} {
		if err := s.Await(t.Context(), uid); err != nil {
			t.Error(err)
		}
	}
}

// TestRefusedThenDeleted has a proxy refuse a pod, which is then deleted: it has to be told that,
// as it tries the pod again by itself, and the connection goes on.
func TestRefusedThenDeleted(t *testing.T) {
	t.Parallel()
	o, events := observed()
	s := begin(t, o)
	p := connect(t, s)
	set(t, s, "a")
	p.expect(KindAdd, "a")
	p.ack("port 15008 is taken")
	settle(t, s, ErrRefused)
	s.Delete("a")
	p.take(KindDel, "a") // by the same connection
	if err := s.Await(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	set(t, s, "b")
	p.take(KindAdd, "b")
	if err := s.Await(t.Context(), "b"); err != nil {
		t.Error(err)
	}
	for range len(events) {
		if e := <-events; e.Request.Kind == 0 && e.Err != nil {
			t.Errorf("a connection has ended: %v", e.Err)
		}
	}
}

// TestIdleConnection leaves a connection alone for longer than a proxy may take for an answer.
func TestIdleConnection(t *testing.T) {
	t.Parallel()
	const patience = 50 * time.Millisecond
	s := begin(t, Options{Timeout: patience})
	p := connect(t, s)
	if err := p.SetReadDeadline(time.Now().Add(4 * patience)); err != nil {
		t.Fatal(err)
	}
	if n, err := p.Read(make([]byte, MaxMessage)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, %v, want that nothing happens", n, err)
	}
	if err := p.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	set(t, s, "a")
	p.take(KindAdd, "a")
}
