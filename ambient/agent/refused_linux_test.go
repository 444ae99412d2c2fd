// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// hostBreaks is a dataplane that refuses the host's plan while it is armed, and that cannot read
// the host as often as a test says.
type hostBreaks struct {
	hostDataplane

	host    *interception.Netns
	refuses atomic.Bool
	unread  atomic.Int32
}

func (h *hostBreaks) Apply(ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
	if ns == h.host && h.refuses.Load() {
		return errBroken
	}
	return h.hostDataplane.Apply(ctx, ns, p)
}

func (h *hostBreaks) Observe(ctx context.Context, ns *interception.Netns, owner interception.Owner) (interception.State, error) {
	if ns == h.host && h.unread.Add(-1) >= 0 {
		return interception.State{}, errBroken
	}
	return h.hostDataplane.Observe(ctx, ns, owner)
}

func newHostBreaks(t *testing.T) (*node, *hostBreaks) {
	t.Helper()
	n := newNode(t)
	native, is := n.dataplane.(hostDataplane)
	if !is {
		t.Fatal("the dataplane edits no sets")
	}
	h := &hostBreaks{hostDataplane: native, host: n.options.Host}
	n.options.Dataplane, n.options.Sets = h, h
	return n, h
}

// TestWithdrawalWhereTheHostRefuses withdraws pods while the host refuses its rules, after another
// program has flushed them: the sets and their members are there. All pods get out of the mesh, and
// the host's rules go.
func TestWithdrawalWhereTheHostRefuses(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]bool{"the same agent": false, "the next agent": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, h := newHostBreaks(t)
			one, other := n.pod("a"), n.pod("b")
			a, end := n.run()
			n.proxy()
			n.feed <- told(object("a"), object("b"))
			n.awaitSelection(a, "a b")
			h.refuses.Store(true)
			sandboxtest.Run(t, n.options.Host.File(), "", "nft", "flush", "table", "inet", string(owner))
			if again {
				end()
				a, _ = n.run()
				n.feed <- told(object("a"), object("b"))
			}
			patience, enough := context.WithTimeout(t.Context(), 30*time.Second)
			defer enough()
			if err := a.Withdraw(patience, func(Pod) {}, "a"); err != nil {
				t.Fatal(err)
			}
			if n.captured(one) || !n.captured(other) {
				t.Errorf("captured %t and %t, want the other one alone", n.captured(one), n.captured(other))
			}
			if err := a.Withdraw(patience, func(Pod) {}); err != nil {
				t.Fatal(err)
			}
			if n.captured(other) || len(n.members())+len(n.records()) > 0 {
				t.Errorf("captured %t, members %v, records %v", n.captured(other), n.members(), n.records())
			}
		})
	}
}

// TestUndrainablePodLeaves has the kernel refuse to let a pod's connections end: after the time
// that these would have, the pod leaves the mesh without.
func TestUndrainablePodLeaves(t *testing.T) {
	t.Parallel()
	n, b := newBreakable(t)
	n.options.DrainTimeout = 3 * time.Second // and the pauses between attempts come to lie at 3.15 and 6.35 s
	pod := n.pod("a")
	a, _ := n.run()
	n.proxy()
	for range 2 {
		n.feed <- told(object("a"))
		n.awaitSelection(a, "a")
		n.connect(pod, 1)
		b.apply.Store(true)
		b.remove.Store(true)
		began := time.Now()
		n.feed <- told(optedOut("a"))
		n.awaitPods(a, "that the draining plan is refused", func(pods []Pod) bool {
			return len(pods) == 1 && pods[0].Step == ambient.StepDrain && pods[0].Err != nil
		})
		n.awaitPods(a, "that the removal is refused, too", func(pods []Pod) bool {
			return len(pods) == 1 && pods[0].Step == ambient.StepRemove && pods[0].Err != nil
		})
		n.connect(pod, 1) // goes through the proxy until then
		b.remove.Store(false)
		n.awaitRest(a)
		if took := time.Since(began); took < n.options.DrainTimeout {
			t.Errorf("the pod is out after %s, want it to have %s", took, n.options.DrainTimeout)
		}
		if n.captured(pod) || n.served(pod) || len(n.members())+len(n.records()) > 0 {
			t.Errorf("captured %t, served %t, members %v, records %v", n.captured(pod), n.served(pod), n.members(), n.records())
		}
		b.apply.Store(false)
	}
}

// TestHostIsReadAgain has the host unreadable for a moment right after another program has flushed
// its rules. They are back without another notice: no round comes for an hour, and no pod has an
// agent's worker that looks.
func TestHostIsReadAgain(t *testing.T) {
	t.Parallel()
	n, h := newHostBreaks(t)
	var broken atomic.Bool
	n.options.ObserveHost = func(err error) {
		broken.Store(errors.Is(err, errBroken))
		n.observe(Pod{})
	}
	n.strangers(nil) // so that the host has its plan
	n.run()
	n.feed <- told()
	stands := func() bool {
		state, err := n.dataplane.Observe(t.Context(), n.options.Host, owner)
		return err == nil && len(state.Objects) > 0
	}
	h.unread.Store(5)
	sandboxtest.Run(t, n.options.Host.File(), "", "nft", "flush", "ruleset")
	n.await(broken.Load, func() string { return "the host can be read" })
	n.await(func() bool { return !broken.Load() && stands() }, func() string { return "the host's rules are not back" })
}
