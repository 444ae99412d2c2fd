// SPDX-License-Identifier: Apache-2.0

package iptables_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
)

// stuck runs some programs, and then only such as never end by themselves.
type stuck struct {
	testing.TB
	left     atomic.Int64
	atTheEnd func() // called before the first of the endless ones; may be nil
}

// Run is [iptables.Runner.Run].
func (s *stuck) Run(ctx context.Context, command iptables.Command) (iptables.Output, error) {
	left := s.left.Add(-1)
	if left >= 0 {
		// These must not fail where the machine is busy.
		return iptables.DefaultRunner().Run(context.WithoutCancel(ctx), command)
	}
	if left == -1 && s.atTheEnd != nil {
		s.atTheEnd()
	}
	select {
	case <-ctx.Done():
		return iptables.Output{}, ctx.Err()
	case <-time.After(time.Minute):
		s.Errorf("%q is never ended", command.Args)
		return iptables.Output{}, errors.New("it goes on and on")
	}
}

// impatient returns options by which the runner's endless programs are soon ended.
func impatient(flavour iptables.Flavour, s *stuck) iptables.Options {
	return iptables.Options{Flavour: flavour, Runner: s, Wait: time.Nanosecond, Timeout: 10 * time.Millisecond}
}

// wantOverdue checks an error about a program that was ended, one of those with that end of a name.
func wantOverdue(t *testing.T, err error, program string) {
	t.Helper()
	for _, want := range []string{program + ": it was ended after 10", "may be changing"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, interception.ErrUnsupported) {
		t.Errorf("got %v, want the error of a deadline", err)
	}
}

// TestProgramsHaveADeadline has programs that never end, under a context that never does either:
// those that read, and those that write.
func TestProgramsHaveADeadline(t *testing.T) {
	t.Parallel()
	plan := capture(t, 15001, nothingMore)
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		ns, runner := newPod(t), &stuck{TB: t}
		dp := dataplane(t, impatient(flavour, runner))
		wantOverdue(t, dp.Apply(t.Context(), ns.Netns, plan), "-restore")
		if err := dataplane(t, iptables.Options{Flavour: flavour}).Apply(t.Context(), ns.Netns, plan); err != nil {
			t.Fatal(err)
		}
		_, err := dp.Observe(t.Context(), ns.Netns, plan.Owner)
		wantOverdue(t, err, "-save")
		wantOverdue(t, dp.Remove(t.Context(), ns.Netns, plan.Owner), "-save")
	})
}

// TestLastStepHasADeadline has the program never end that removes the record of the plan before. It
// goes on after the end of the caller's context.
func TestLastStepHasADeadline(t *testing.T) {
	t.Parallel()
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		applied := func() *pod {
			ns := newPod(t)
			if err := dataplane(t, iptables.Options{Flavour: flavour}).Apply(t.Context(), ns.Netns, network(t, 65)); err != nil {
				t.Fatal(err)
			}
			return ns
		}
		next := capture(t, 15001, nothingMore)
		count := &counted{Runner: iptables.DefaultRunner()}
		if err := dataplane(t, iptables.Options{Flavour: flavour, Runner: count}).Apply(t.Context(), applied().Netns, next); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		runner := &stuck{TB: t, atTheEnd: cancel}
		runner.left.Store(int64(len(count.programs())) - 1)
		wantOverdue(t, dataplane(t, impatient(flavour, runner)).Apply(ctx, applied().Netns, next), "-save")
		if ctx.Err() == nil {
			t.Error("the last program was not reached")
		}
	})
}

// TestTimeoutIsPositive refuses a time below zero.
func TestTimeoutIsPositive(t *testing.T) {
	t.Parallel()
	if _, err := iptables.New(iptables.Options{Timeout: -time.Second}); err == nil {
		t.Error("no error")
	}
}
