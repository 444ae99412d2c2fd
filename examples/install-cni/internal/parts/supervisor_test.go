// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/meshcni/meshcni/examples/install-cni/internal/health"
	"github.com/meshcni/meshcni/internal/testing/testlog"
)

const patience = testlog.Patience

// start runs parts until the test ends.
func start(t *testing.T, parts ...Part) (*Supervisor, *health.State) {
	t.Helper()
	state := health.NewState()
	s := New(state, slog.New(slog.DiscardHandler), parts...)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return s, state
}

// attempts returns a part that fails once for each failure, and then works.
func attempts(name string, failures ...func() error) (part Part, began chan int) {
	began, n := make(chan int, 100), 0
	return Part{Name: name, Run: func(ctx context.Context, say func(string)) error {
		n++
		if n <= len(failures) {
			began <- n
			return failures[n-1]()
		}
		say("")
		began <- n
		<-ctx.Done()
		return nil
	}}, began
}

func wantAttempt(t *testing.T, began <-chan int, want int) {
	t.Helper()
	for {
		select {
		case n := <-began:
			if n == want {
				return
			}
		case <-time.After(patience):
			t.Fatalf("attempt %d doesn't begin", want)
		}
	}
}

func TestEachPartIsStartedAgainByItself(t *testing.T) {
	t.Parallel()
	failing, began := attempts("failing",
		func() error { return errors.New("broken") },
		func() error { return nil },
		func() error { panic("oh") },
	)
	steady, steadyBegan := attempts("steady")
	_, state := start(t, failing, steady)
	wantAttempt(t, steadyBegan, 1)
	wantAttempt(t, began, 4)
	if reasons := state.Reasons(); reasons != nil {
		t.Errorf("reasons %q", reasons)
	}
	for _, c := range state.Conditions() {
		if want := map[string]int{"failing": 3, "steady": 0}[c.Part]; c.Restarts != want || c.Unhealthy != "" {
			t.Errorf("%s: %d restarts, want %d; %q", c.Part, c.Restarts, want, c.Unhealthy)
		}
	}
	if len(steadyBegan) > 0 {
		t.Error("the part that works was started again, too")
	}
}

func TestReasonsAndHealth(t *testing.T) {
	t.Parallel()
	oh := func() error { panic("oh") }
	hold, resume := make(chan struct{}), make(chan struct{})
	failing, began := attempts("failing", oh, oh, oh, func() error { close(hold); <-resume; return syscall.EMFILE })
	_, state := start(t, failing)
	<-hold
	c := state.Conditions()[0]
	if c.Ready || c.Reason != "panic: oh" || !strings.Contains(c.Unhealthy, "3 times") {
		t.Errorf("after three panics: %+v", c)
	}
	close(resume)
	wantAttempt(t, began, 5)
	if c := state.Conditions()[0]; !c.Ready || c.Unhealthy != "" || c.Restarts != 4 {
		t.Errorf("once it works: %+v", c)
	}
}

func TestRestart(t *testing.T) {
	t.Parallel()
	part, began := attempts("a")
	other, otherBegan := attempts("b")
	s, state := start(t, part, other)
	wantAttempt(t, began, 1)
	wantAttempt(t, otherBegan, 1)
	s.Restart("nobody", "no reason")
	s.Restart("a", "its file is gone")
	wantAttempt(t, began, 2)
	if c := state.Conditions()[0]; !c.Ready || c.Restarts != 1 {
		t.Errorf("got %+v", c)
	}
	if len(otherBegan) > 0 {
		t.Error("the other part was started again, too")
	}
}

func TestAuxiliaryPartsDontCount(t *testing.T) {
	t.Parallel()
	state := health.NewState()
	New(state, slog.New(slog.DiscardHandler), Part{Name: "a", Auxiliary: true}, Part{Name: "b"})
	if got := fmt.Sprint(state.Reasons()); got != "[b: starting]" {
		t.Errorf("reasons %s", got)
	}
}

func TestPauses(t *testing.T) {
	t.Parallel()
	s, broken, now := newSeries(), errors.New("broken"), time.Now()
	for i := range 40 {
		want := min(100*time.Millisecond<<min(i, 20), time.Minute)
		if got := s.next(broken, now); got < want/2 || got > want {
			t.Errorf("pause %d is %v, want half to all of %v", i+1, got, want)
		}
	}
	if got := s.next(broken, now.Add(time.Minute+s.Calm+1)); got > firstPause || s.Count() != 1 {
		t.Errorf("after a calm: pause %v, %d failures", got, s.Count())
	}
	if got := s.unhealthy(fmt.Errorf("open: %w", syscall.EMFILE)); got == "" {
		t.Error("no files left to open is healthy")
	}
}
