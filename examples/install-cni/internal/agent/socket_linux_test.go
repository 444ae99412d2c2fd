// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/interception/podsource/agentserver"
)

// successor replaces each of the agent's sockets by a newer daemon's, and serves there until leave
// is called.
func (f *fixture) successor(t *testing.T) (leave func()) {
	t.Helper()
	ctx, end := context.WithCancel(context.Background())
	served := make(chan error, 2)
	for _, s := range sockets() {
		listener, err := s.listen(t.Context(), f.RunDir)
		if err != nil {
			t.Fatal(err)
		}
		go func() { served <- agentserver.Server{Instance: "two"}.Serve(ctx, listener) }()
	}
	left := false
	leave = func() {
		if left {
			return
		}
		left = true
		end()
		for range sockets() {
			if err := <-served; err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(leave)
	return leave
}

// awaitAnswer waits until this instance answers at both sockets; empty stands for no instance.
func (f *fixture) awaitAnswer(t *testing.T, want string) {
	t.Helper()
	f.await(t, "an answer of "+want, func() bool {
		for _, s := range sockets() {
			if got, _ := f.ask(t.Context(), s); got != want {
				return false
			}
		}
		return true
	})
}

// TestTheSocketsFollowTheClaim: a newer daemon takes the sockets, and ends.
func TestTheSocketsFollowTheClaim(t *testing.T) {
	t.Parallel()
	f := start(t, nil)
	f.awaitAnswer(t, "one")
	f.keeps.Store(false)
	leave := f.successor(t)
	f.state.Look(t.Context())
	if reasons := f.state.Reasons(); reasons != nil {
		t.Errorf("while the newer daemon keeps the node: %v", reasons)
	}
	f.awaitAnswer(t, "two")
	leave()
	f.keeps.Store(true)
	f.kept <- struct{}{}
	f.awaitAnswer(t, "one")
}

// TestADaemonThatStillAnswersIsRelieved: a daemon that has returned the node may take a moment to
// end.
func TestADaemonThatStillAnswersIsRelieved(t *testing.T) {
	t.Parallel()
	f := start(t, nil)
	f.successor(t)
	f.kept <- struct{}{}
	f.awaitAnswer(t, "one")
}

// TestReadinessIsARoundTrip: without a change of the claim, a readiness check detects the loss.
func TestReadinessIsARoundTrip(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		leaves bool
		reason string
	}{
		"it answers":  {false, "agent-socket: another program answers at agent.sock"},
		"it has left": {true, "agent-socket: no program answers at agent.sock: dial unix "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := start(t, nil)
			if leave := f.successor(t); test.leaves {
				leave()
			}
			f.state.Look(t.Context())
			if text := f.log.String(); !strings.Contains(text, strings.TrimPrefix(test.reason, "agent-socket: ")) {
				t.Errorf("log:\n%s", text)
			}
			f.awaitAnswer(t, "one")
			f.await(t, "ready", func() bool { f.state.Look(t.Context()); return f.state.Reasons() == nil })
		})
	}
}

// TestASocketThatDoesNotAnswer belongs to a program that listens and never answers: a slow agent is
// not replaced.
func TestASocketThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	f := start(t, nil)
	silent, err := agentserver.Listen(t.Context(), f.RunDir)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	f.state.LookWithin = 100 * time.Millisecond
	f.state.Look(t.Context())
	if got := strings.Join(f.state.Reasons(), "\n"); !strings.Contains(got, "agent-socket: no answer at agent.sock") {
		t.Errorf("got %q", got)
	}
	for _, c := range f.state.Conditions() {
		if c.Restarts != 0 {
			t.Errorf("%s was started again", c.Part)
		}
	}
	if _, err := net.Dial("unix", filepath.Join(f.RunDir, agentSocket().name)); err != nil {
		t.Error(err)
	}
}
