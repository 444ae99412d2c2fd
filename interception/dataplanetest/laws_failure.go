// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/meshcni/meshcni/interception"
)

// maxSteps limits the steps of a dataplane whose steps are made to fail in turn.
const maxSteps = 2000

// failures replaces plans, puts them into an empty namespace and removes them, and makes each step
// of that fail.
func (s *suite) failures(t *testing.T) {
	t.Helper()
	plans := map[string]*interception.Plan{"nothing": {Owner: caseOwner}}
	for _, c := range s.supported(t, s.standard) {
		plans[c.Name] = c.Plan
	}
	for _, pair := range [][2]string{
		{"nothing", "objects"}, {"redirect", "tproxy"}, {"tproxy-dns", "networks"}, {"objects", "redirect"}, {"objects", "nothing"},
	} {
		old, next := plans[pair[0]], plans[pair[1]]
		if old == nil || next == nil {
			continue // logged as not supported by the dataplane
		}
		for way, failing := range s.waysToFail() {
			t.Run(fmt.Sprintf("%s/%s-to-%s", way, pair[0], pair[1]), func(t *testing.T) {
				t.Parallel()
				s.failEach(t, old, next, failing)
			})
		}
	}
}

// failing returns a dataplane and a context that make the n-th step fail.
type failing func(t *testing.T, n int) (interception.Dataplane, context.Context)

func (s *suite) waysToFail() map[string]failing {
	ways := map[string]failing{"context": func(t *testing.T, n int) (interception.Dataplane, context.Context) {
		t.Helper()
		return s.New(t), newEnding(t.Context(), n)
	}}
	if s.Failing != nil {
		ways["step"] = func(t *testing.T, n int) (interception.Dataplane, context.Context) {
			t.Helper()
			return s.Failing(t, n), t.Context()
		}
	}
	return ways
}

// failEach goes from an old plan to the next one, with each step failing once, until none is left.
func (s *suite) failEach(t *testing.T, old, next *interception.Plan, failing failing) {
	t.Helper()
	was, will := s.fresh(t, LawFailures, old), s.fresh(t, LawFailures, next)
	ns := s.Ground.Namespace(t)
	for n := 1; n <= maxSteps; n++ {
		s.apply(t, LawFailures, ns, old)
		dataplane, ctx := failing(t, n)
		err := dataplane.Apply(ctx, ns, next)
		held := s.Ground.Dump(t, ns)
		if err == nil && held == will {
			if n == 1 && len(next.Objects) > 0 {
				LawFailures.broken(t, "no step fails: the context is never looked at, or ConformanceOptions.Failing makes nothing fail")
			}
			t.Logf("%d steps", n-1)
			return
		}
		s.failed(t, n, err, held, was, will)
		s.apply(t, LawFailures, ns, next)
		what := fmt.Sprintf("step %d: not healed by the next Apply", n)
		if !LawFailures.same(t, what, "the new plan", will, "the namespace", s.Ground.Dump(t, ns)) {
			return
		}
	}
	t.Fatalf("law %q: Apply still fails with %d steps", string(LawFailures), maxSteps)
}

// failed checks the content of a namespace after an Apply that returned an error or did not
// complete the new plan.
func (s *suite) failed(t *testing.T, n int, err error, held, was, will string) {
	t.Helper()
	switch {
	case err == nil:
		LawFailures.broken(t, "step %d: Apply reports success, but:\n%s", n, difference("the new plan", will, "the namespace", held))
	case !s.hasContent(was, held) && !s.hasContent(will, held):
		LawFailures.broken(t, "step %d: %v:\n%s\n%s", n, err, difference("the old plan", was, "the namespace", held),
			difference("the new plan", will, "the namespace", held))
	}
}

// hasContent reports whether a namespace has the wanted content, apart from the dataplane's notes.
func (s *suite) hasContent(want, held string) bool {
	return want == held || s.withoutNotes(want) == s.withoutNotes(held)
}

func (s *suite) withoutNotes(dump string) string {
	return strings.Join(slices.DeleteFunc(strings.SplitAfter(dump, "\n"), s.Notes), "")
}

// ending is a context that ends when it is checked for the n-th time.
type ending struct {
	context.Context
	mu   sync.Mutex
	left int
	done chan struct{}
}

func newEnding(parent context.Context, n int) *ending {
	return &ending{Context: parent, left: n, done: make(chan struct{})}
}

// Err returns nil until its n-th call.
func (e *ending) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.left--; e.left > 0 {
		return nil
	}
	if e.left == 0 {
		close(e.done)
	}
	return context.Canceled
}

// Done is closed when Err returns an error.
func (e *ending) Done() <-chan struct{} { return e.done }

// refusals passes the dataplane invalid arguments.
func (s *suite) refusals(t *testing.T) {
	t.Helper()
	ns, plan := s.Ground.Namespace(t), s.supported(t, s.standard)[0].Plan
	closed := s.Ground.Namespace(t)
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	invalid := owned(plan, "word")
	for _, refused := range []struct {
		name string
		ctx  context.Context
		ns   *interception.Netns
		plan *interception.Plan
		want error // nil for any
	}{
		{"a nil namespace", t.Context(), nil, plan, interception.ErrNotNetns},
		{"a namespace that was not opened", t.Context(), &interception.Netns{}, plan, interception.ErrNotNetns},
		{"a closed namespace", t.Context(), closed, plan, os.ErrClosed},
		{"a nil plan", t.Context(), ns, nil, nil},
		{"an owner of a single word", t.Context(), ns, invalid, interception.ErrName},
		{"a context that has ended", ended, ns, plan, context.Canceled},
	} {
		s.refused(t, "Apply with "+refused.name, refused.want, func(dp interception.Dataplane) error {
			return dp.Apply(refused.ctx, refused.ns, refused.plan)
		})
		if refused.plan == nil {
			continue
		}
		owner := refused.plan.Owner
		s.refused(t, "Remove with "+refused.name, refused.want, func(dp interception.Dataplane) error {
			return dp.Remove(refused.ctx, refused.ns, owner)
		})
		if _, without := s.Without[LawObserves]; !without {
			s.refused(t, "Observe with "+refused.name, refused.want, func(dp interception.Dataplane) error {
				_, err := dp.Observe(refused.ctx, refused.ns, owner)
				return err
			})
		}
	}
	if ns.File() != nil {
		s.hostUntouched(t, plan)
	}
	empty := s.Ground.Dump(t, s.Ground.Namespace(t))
	LawRefusals.same(t, "calls that were refused", "an empty namespace", empty, "this one", s.Ground.Dump(t, ns))
}

// refused expects an error of a call.
func (s *suite) refused(t *testing.T, what string, want error, call func(interception.Dataplane) error) {
	t.Helper()
	if err := call(s.New(t)); err == nil || want != nil && !errors.Is(err, want) {
		if want == nil {
			want = errors.New("any error")
		}
		LawRefusals.broken(t, "%s: got %v, want an error that wraps: %v", what, err, want)
	}
}

// hostUntouched checks the host's namespace for refused plans, and that the host's namespace cannot
// be opened by its path.
func (s *suite) hostUntouched(t *testing.T, plan *interception.Plan) {
	t.Helper()
	for _, path := range []string{"/proc/self/ns/net", "/proc/1/ns/net"} {
		if ns, err := interception.OpenNetns(path, interception.NetnsOptions{}); !errors.Is(err, interception.ErrHostNetns) {
			LawRefusals.broken(t, "%s can be opened as a pod's: %v, %v", path, ns, err)
		}
	}
	stranger := interception.StandInNetns("no namespace", interception.NetnsID{Inode: 1})
	s.refused(t, "Apply with a handle without a descriptor", interception.ErrNotNetns, func(dp interception.Dataplane) error {
		return dp.Apply(t.Context(), stranger, plan)
	})
	host, err := interception.HostNetns(interception.NetnsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = host.Close() }()
	if _, without := s.Without[LawObserves]; !without {
		state, err := s.New(t).Observe(t.Context(), host, plan.Owner)
		// A dataplane that may not read the namespace cannot have written to it.
		if err != nil && !errors.Is(err, fs.ErrPermission) {
			t.Fatalf("law %q: Observe: %v", string(LawRefusals), err)
		}
		if len(state.Objects) > 0 {
			LawRefusals.broken(t, "the host's namespace holds:\n%s", text(state))
		}
	}
}
