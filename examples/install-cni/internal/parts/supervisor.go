// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/meshcni/meshcni/examples/install-cni/internal/health"
	"github.com/meshcni/meshcni/internal/upkeep"
)

// Part is one thing that a daemon does by itself.
type Part struct {
	// Name identifies the part in logs, metrics and /readyz.
	Name string
	// Run works until ctx ends. It calls say with "" once it does its work, and with a reason
	// whenever it does not. A return before ctx ends is a failure, also without an error.
	Run func(ctx context.Context, say func(reason string)) error
	// Check, unless it is nil, returns why the part does not do its work although Run has reported
	// that it does; "" if it does. It is called, concurrently with Run, when the node's readiness
	// is requested, and must return within a second.
	Check func(ctx context.Context) (reason string)
	// Auxiliary reports that the node is ready without this part, too.
	Auxiliary bool
}

// Supervisor runs parts. Create it with [New].
type Supervisor struct {
	state *health.State
	log   *slog.Logger
	parts []Part

	mu      sync.Mutex
	running map[string]context.CancelCauseFunc
}

// errRestart ends a part that is to be restarted.
var errRestart = errors.New("to be started again")

// errEnded is the error of a part that ended by itself without an error.
var errEnded = errors.New("it ended unexpectedly")

// New returns a supervisor. From now on, all parts are in the state, as starting.
func New(state *health.State, log *slog.Logger, parts ...Part) *Supervisor {
	for _, p := range parts {
		state.Set(p.Name, "starting")
		if p.Auxiliary {
			state.Auxiliary(p.Name)
		}
		if p.Check != nil {
			state.Check(p.Name, p.Check)
		}
	}
	return &Supervisor{state: state, log: log, parts: parts, running: map[string]context.CancelCauseFunc{}}
}

// Run runs all parts until ctx ends and all of them have ended.
func (s *Supervisor) Run(ctx context.Context) {
	var group sync.WaitGroup
	for _, p := range s.parts {
		group.Go(func() { s.keep(ctx, p) })
	}
	group.Wait()
}

// Restart ends the part of that name and starts it again, as after a failure: something that it
// created was removed. It does nothing for a part that is not running.
func (s *Supervisor) Restart(name, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if end := s.running[name]; end != nil {
		end(fmt.Errorf("%w: %s", errRestart, why))
	}
}

// keep runs one part again and again.
func (s *Supervisor) keep(ctx context.Context, p Part) {
	row := newSeries()
	for {
		err := s.attempt(ctx, p)
		if ctx.Err() != nil {
			return
		}
		var pause time.Duration
		if errors.Is(err, errRestart) { // it works, but what it created was removed
			pause = firstPause
			s.state.Failed(p.Name, err.Error(), "")
			s.log.Warn("a part is started again", "part", p.Name, "reason", err)
		} else {
			pause = row.next(err, time.Now())
			s.state.Failed(p.Name, err.Error(), row.unhealthy(err))
			s.log.Error("a part failed; it is started again", "part", p.Name, "error", err, "pause", pause, "failures", row.Count())
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// attempt runs a part once. The error is never nil.
func (s *Supervisor) attempt(ctx context.Context, p Part) (err error) {
	ctx, end := context.WithCancelCause(ctx)
	s.note(p.Name, end)
	defer func() {
		s.note(p.Name, nil)
		if value := recover(); value != nil {
			s.log.Error("a part panicked: this is a defect, please report it", "part", p.Name, "panic", value, "stack", string(debug.Stack()))
			err = &panicError{value}
		}
		if cause := context.Cause(ctx); err == nil && cause != nil {
			err = cause
		} else if err == nil {
			err = errEnded
		}
		end(nil)
	}()
	return p.Run(ctx, func(reason string) {
		if s.state.Set(p.Name, reason) {
			s.log.Debug("a part's state has changed", "part", p.Name, "reason", reason)
		}
	})
}

func (s *Supervisor) note(name string, end context.CancelCauseFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[name] = end
}

type panicError struct{ value any }

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

const (
	firstPause = 100 * time.Millisecond
	mostPanics = 3 // in a row
)

// series counts a part's failures in a row, and how many of the latest ones were panics.
type series struct {
	upkeep.Series
	panics int
}

// newSeries returns an empty series. Five minutes without a failure begin a new one.
func newSeries() *series {
	return &series{Series: upkeep.Series{First: firstPause, Most: time.Minute, Calm: 5 * time.Minute}}
}

// next counts a failure of a part, and returns the pause that follows: half of it is random.
func (s *series) next(err error, now time.Time) time.Duration {
	pause := s.Next(now)
	if panicked := (*panicError)(nil); !errors.As(err, &panicked) {
		s.panics = 0
	} else if s.panics++; s.Count() == 1 {
		s.panics = 1
	}
	return pause/2 + rand.N(pause/2)
}

// unhealthy returns why a new process may succeed where another attempt in this one will not.
func (s *series) unhealthy(err error) string {
	switch {
	case s.panics >= mostPanics:
		return fmt.Sprintf("it panicked %d times in a row", s.panics)
	case errors.Is(err, syscall.EMFILE):
		return "this process has too many files open"
	}
	return ""
}
