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

	"github.com/meshcni/meshcni/interception"
)

// maxSteps limits the steps of a dataplane whose steps are made to fail in turn.
const maxSteps = 2000

// failures replaces plans, puts them into an empty namespace and removes them, and makes each step
// of that fail.
func (x *trial) failures() {
	plans := map[string]*interception.Plan{"nothing": {Owner: caseOwner}}
	for _, c := range x.usual() {
		plans[c.Name] = c.Plan
	}
	for _, pair := range [][2]string{
		{"nothing", "objects"}, {"redirect", "tproxy"}, {"tproxy-dns", "networks"}, {"objects", "redirect"}, {"objects", "nothing"},
	} {
		old, next := plans[pair[0]], plans[pair[1]]
		if old == nil || next == nil {
			continue // logged as not supported by the dataplane
		}
		for way, failing := range x.waysToFail() {
			x.run(fmt.Sprintf("%s/%s-to-%s", way, pair[0], pair[1]), func(x *trial) { x.failEach(old, next, failing) })
		}
	}
}

// failing returns a dataplane and a context that make the n-th step fail.
type failing func(x *trial, n int) (interception.Dataplane, context.Context)

func (x *trial) waysToFail() map[string]failing {
	ways := map[string]failing{"context": func(x *trial, n int) (interception.Dataplane, context.Context) {
		return x.New(x.T), newEnding(x.Context(), n)
	}}
	if x.Failing != nil {
		ways["step"] = func(x *trial, n int) (interception.Dataplane, context.Context) {
			return x.Failing(x.T, n), x.Context()
		}
	}
	return ways
}

// failEach goes from an old plan to the next one, with each step failing once, until none is left.
func (x *trial) failEach(old, next *interception.Plan, failing failing) {
	was, will := x.fresh(old), x.fresh(next)
	for n := 1; n <= maxSteps; n++ {
		x.apply(old)
		dataplane, ctx := failing(x, n)
		err := dataplane.Apply(ctx, x.ns, next)
		held := x.dump()
		if err == nil && held == will {
			if n == 1 && len(next.Objects) > 0 {
				x.broken("no step fails: the context is never looked at, or ConformanceOptions.Failing makes nothing fail")
			}
			x.Logf("%d steps", n-1)
			return
		}
		x.failed(n, err, held, was, will)
		x.apply(next)
		what := fmt.Sprintf("step %d: not healed by the next Apply", n)
		if !x.same(what, "the new plan", will, "the namespace", x.dump()) {
			return
		}
	}
	x.Fatalf("law %q: Apply still fails with %d steps", string(x.law), maxSteps)
}

// failed checks the content of a namespace after an Apply that returned an error or did not
// complete the new plan.
func (x *trial) failed(n int, err error, held, was, will string) {
	switch {
	case err == nil:
		x.broken("step %d: Apply reports success, but:\n%s", n, difference("the new plan", will, "the namespace", held))
	case !x.hasContent(was, held) && !x.hasContent(will, held):
		x.broken("step %d: %v:\n%s\n%s", n, err, difference("the old plan", was, "the namespace", held),
			difference("the new plan", will, "the namespace", held))
	}
}

// hasContent reports whether a namespace has the wanted content, apart from the dataplane's notes.
func (x *trial) hasContent(want, held string) bool {
	return want == held || x.withoutNotes(want) == x.withoutNotes(held)
}

func (x *trial) withoutNotes(dump string) string {
	return strings.Join(slices.DeleteFunc(strings.SplitAfter(dump, "\n"), x.Notes), "")
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
func (x *trial) refusals() {
	ns, plan, closed := x.ns, x.usual()[0].Plan, x.anew().ns
	if err := closed.Close(); err != nil {
		x.Fatal(err)
	}
	ended, cancel := context.WithCancel(x.Context())
	cancel()
	invalid := owned(plan, "word")
	for _, refused := range []struct {
		name string
		ctx  context.Context
		ns   *interception.Netns
		plan *interception.Plan
		want error // nil for any
	}{
		{"a nil namespace", x.Context(), nil, plan, interception.ErrNotNetns},
		{"a namespace that was not opened", x.Context(), &interception.Netns{}, plan, interception.ErrNotNetns},
		{"a closed namespace", x.Context(), closed, plan, os.ErrClosed},
		{"a nil plan", x.Context(), ns, nil, interception.ErrPlan},
		{"an owner of a single word", x.Context(), ns, invalid, interception.ErrName},
		{"a context that has ended", ended, ns, plan, context.Canceled},
	} {
		x.refused("Apply with "+refused.name, refused.want, func(dp interception.Dataplane) error {
			return dp.Apply(refused.ctx, refused.ns, refused.plan)
		})
		if refused.plan == nil {
			continue
		}
		owner := refused.plan.Owner
		x.refused("Remove with "+refused.name, refused.want, func(dp interception.Dataplane) error {
			return dp.Remove(refused.ctx, refused.ns, owner)
		})
		if _, without := x.Without[LawObserves]; !without {
			x.refused("Observe with "+refused.name, refused.want, func(dp interception.Dataplane) error {
				_, err := dp.Observe(refused.ctx, refused.ns, owner)
				return err
			})
		}
	}
	if ns.File() != nil {
		x.hostUntouched(plan)
	}
	empty := x.anew().dump()
	x.same("calls that were refused", "an empty namespace", empty, "this one", x.dump())
}

// refused expects an error of a call.
func (x *trial) refused(what string, want error, call func(interception.Dataplane) error) {
	if err := call(x.New(x.T)); err == nil || want != nil && !errors.Is(err, want) {
		if want == nil {
			want = errors.New("any error")
		}
		x.broken("%s: got %v, want an error that wraps: %v", what, err, want)
	}
}

// hostUntouched checks the host's namespace for refused plans, and that the host's namespace cannot
// be opened by its path.
func (x *trial) hostUntouched(plan *interception.Plan) {
	for _, path := range []string{"/proc/self/ns/net", "/proc/1/ns/net"} {
		if ns, err := interception.OpenNetns(path, interception.NetnsOptions{}); !errors.Is(err, interception.ErrHostNetns) {
			x.broken("%s can be opened as a pod's: %v, %v", path, ns, err)
		}
	}
	stranger := interception.StandInNetns("no namespace", interception.NetnsID{Inode: 1})
	x.refused("Apply with a handle without a descriptor", interception.ErrNotNetns, func(dp interception.Dataplane) error {
		return dp.Apply(x.Context(), stranger, plan)
	})
	host, err := interception.HostNetns(interception.NetnsOptions{})
	if err != nil {
		x.Fatal(err)
	}
	defer func() { _ = host.Close() }()
	if _, without := x.Without[LawObserves]; !without {
		state, err := x.New(x.T).Observe(x.Context(), host, plan.Owner)
		// A dataplane that may not read the namespace cannot have written to it.
		if err != nil && !errors.Is(err, fs.ErrPermission) {
			x.Fatalf("law %q: Observe: %v", string(x.law), err)
		}
		if len(state.Objects) > 0 {
			x.broken("the host's namespace holds:\n%s", text(state))
		}
	}
}
