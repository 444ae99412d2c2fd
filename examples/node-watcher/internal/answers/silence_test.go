// SPDX-License-Identifier: Apache-2.0

package answers

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/meshcni/meshcni/examples/internal/contact"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/internal/testing/fakecluster"
)

// lines keeps a log.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write adds a line.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns the whole log.
func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// waitNow waits until the result of Status matches.
func (f *fixture) waitNow(t *testing.T, what string, is func(podsource.AgentStatus) bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		status, err := f.Status(t.Context())
		if err == nil && is(status) {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%s: got %+v of %+v, %v", what, status, status.Server, err)
		case <-time.After(time.Millisecond): // an answer of the API server causes no signal
		}
	}
}

func (f *fixture) pass(d time.Duration) { f.later.Add(int64(d)) }

func known(interception.Pod) bool { return true }

// TestSilence: the API server is silent over an open watch; nothing fails, and nothing is reported.
func TestSilence(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pods("a", "web-0")...)
	f.waitStatus(t, true, "")
	f.pass(2*time.Minute + 50*time.Second)
	f.waitNow(t, "a little silent", func(s podsource.AgentStatus) bool { return s.Ready && s.Server.Age > 169 })
	f.cluster.Bookmark()
	f.waitNow(t, "after a bookmark", func(s podsource.AgentStatus) bool { return s.Ready && s.Server.Age < 169 })
	f.pass(3*time.Minute + time.Second)
	f.waitNow(t, "silent", func(s podsource.AgentStatus) bool {
		return !s.Ready && s.Server.Failure == contact.Timeout && strings.Contains(s.Reason, "has said nothing about the pods of node a for 3m")
	})
	f.waitPod(t, "web-0", nil, known)
	f.waitPod(t, "web-9", podsource.ErrNotFound, nil)
	if len(f.statuses) > 0 {
		t.Errorf("it was taken back that all pods are known: %+v", <-f.statuses)
	}
	f.cluster.Bookmark()
	f.waitNow(t, "it speaks again", func(s podsource.AgentStatus) bool { return s.Ready && s.Reason == "" })
}

// TestOutage: the API server is unreachable for longer than the allowed silence, and comes back.
func TestOutage(t *testing.T) {
	t.Parallel()
	f := newFixture(t, pods("a", "web-0")...)
	f.waitStatus(t, true, "")
	address := f.server.Listener.Addr().String()
	f.cluster.Refuse(http.StatusServiceUnavailable)
	f.server.Close()
	f.waitNow(t, "refused, and ready", func(s podsource.AgentStatus) bool { return s.Ready && s.Server.Failure == contact.Refused })
	f.pass(4 * time.Minute)
	f.waitNow(t, "refused for too long", func(s podsource.AgentStatus) bool {
		return !s.Ready && strings.Contains(s.Reason, ": refused, ") && strings.Contains(s.Reason, "connection refused")
	})
	f.waitPod(t, "web-0", nil, known)
	f.cluster.Refuse(0)
	f.serveAt(t, address)
	f.waitNow(t, "it is back, in the status and then in the log", func(s podsource.AgentStatus) bool {
		return s.Ready && s.Server.Failure == "" && strings.Contains(f.log.String(), "answers about the node's pods again")
	})
	if text := f.log.String(); strings.Count(text, "failure=refused") != 1 {
		t.Errorf("log:\n%s", text)
	}
}

// serveAt makes the cluster answer at an address where no program listens.
func (f *fixture) serveAt(t *testing.T, address string) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(f.cluster.Handler())
	if err := server.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	server.Listener = listener
	server.Start()
	t.Cleanup(func() { f.cluster.Refuse(http.StatusServiceUnavailable); server.Close() })
}

// TestAStartThatFails: every cause that keeps the API server from answering has a name, even if
// client-go retries silently.
func TestAStartThatFails(t *testing.T) {
	t.Parallel()
	for kind, status := range map[string]int{
		contact.TooMany: 429, contact.Unauthorized: 401, contact.Forbidden: 403, contact.ServerError: 500, contact.Refused: 0,
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := &fixture{cluster: fakecluster.New(), statuses: make(chan podsource.AgentStatus, 100), ended: make(chan error, 1)}
			f.cluster.Put(pods("a", "web-0")...)
			f.cluster.Refuse(status)
			f.server = httptest.NewServer(f.cluster.Handler())
			t.Cleanup(func() { f.cluster.Refuse(http.StatusServiceUnavailable); f.server.Close() })
			address := f.server.Listener.Addr().String()
			if status == 0 {
				f.server.Close()
			}
			f.start(t, Server{URL: "http://" + address})
			f.waitStatus(t, false, "are being listed")
			f.waitStatus(t, false, fmt.Sprintf("doesn't answer about the pods of node a: %s: ", kind))
			f.waitNow(t, "several failures", func(s podsource.AgentStatus) bool {
				return !s.Ready && s.Server.Failure == kind && s.Server.Failures > 1
			})
			if text := f.log.String(); strings.Count(text, "level=WARN") != 1 {
				t.Errorf("not one line for all failures:\n%s", text)
			}
			f.cluster.Refuse(0)
			if status == 0 {
				f.serveAt(t, address)
			}
			f.waitStatus(t, true, "")
			f.waitPod(t, "web-0", nil, known)
		})
	}
}

// TestAStartThatHangs accepts requests and answers none.
func TestAStartThatHangs(t *testing.T) {
	t.Parallel()
	f := &fixture{cluster: fakecluster.New(), statuses: make(chan podsource.AgentStatus, 100), ended: make(chan error, 1)}
	f.cluster.Mute(true)
	f.server = httptest.NewServer(f.cluster.Handler())
	t.Cleanup(func() { f.cluster.Mute(false); f.cluster.Refuse(http.StatusServiceUnavailable); f.server.Close() })
	f.start(t, Server{URL: f.server.URL})
	f.waitStatus(t, false, "are being listed")
	f.pass(4 * time.Minute)
	f.waitNow(t, "hanging", func(s podsource.AgentStatus) bool { return !s.Ready && strings.HasSuffix(s.Reason, ": timeout") })
	f.cluster.Mute(false)
	f.waitStatus(t, true, "")
	f.waitNow(t, "answered", func(s podsource.AgentStatus) bool { return s.Ready })
}
