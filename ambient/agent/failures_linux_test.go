// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest"
	"github.com/meshcni/meshcni/interception"
)

// errBroken is the error of a dataplane that a test has broken.
var errBroken = errors.New("broken by the test")

// breakable is a dataplane of which a test can break some calls.
type breakable struct {
	hostDataplane
	apply, remove, updateV6 atomic.Bool // they fail
	updates, removals       atomic.Int32
}

func (b *breakable) Apply(ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
	if b.apply.Load() {
		return errBroken
	}
	return b.hostDataplane.Apply(ctx, ns, p)
}

func (b *breakable) Remove(ctx context.Context, ns *interception.Netns, owner interception.Owner) error {
	b.removals.Add(1)
	if b.remove.Load() {
		return errBroken
	}
	return b.hostDataplane.Remove(ctx, ns, owner)
}

func (b *breakable) UpdateSet(ctx context.Context, ns *interception.Netns, owner interception.Owner, set interception.SetName, edit interception.SetEdit) error {
	b.updates.Add(1)
	if b.updateV6.Load() && set == ambient.ProbeSet(interception.IPv6) {
		return errBroken
	}
	return b.hostDataplane.UpdateSet(ctx, ns, owner, set, edit)
}

// newBreakable returns a node whose dataplane can be broken.
func newBreakable(t *testing.T) (*node, *breakable) {
	t.Helper()
	n := newNode(t)
	native, is := n.dataplane.(hostDataplane)
	if !is {
		t.Fatal("the dataplane edits no sets")
	}
	b := &breakable{hostDataplane: native}
	n.options.Dataplane, n.options.Sets = b, b
	return n, b
}

// TestFailuresAreRepeated lets one step fail until the test has seen it. Meanwhile the status says
// nothing that is not so, and afterwards the agent gets where it should without news.
func TestFailuresAreRepeated(t *testing.T) {
	t.Parallel()
	gone := ambient.Change{Gone: []string{"a"}, Complete: true}
	for name, test := range map[string]struct {
		call   func(*breakable) *atomic.Bool
		news   ambient.Change // of an enrolled pod; zero to break the enrolment
		step   ambient.Step
		status ambient.Status // meanwhile
	}{
		"enrol, the set of one family": {func(b *breakable) *atomic.Bool { return &b.updateV6 }, ambient.Change{}, ambient.StepEnter, ambient.NoStatus},
		"withdraw, draining":           {func(b *breakable) *atomic.Bool { return &b.apply }, told(optedOut("a")), ambient.StepDrain, ambient.StatusEnabled},
		"withdraw, rules":              {func(b *breakable) *atomic.Bool { return &b.remove }, told(optedOut("a")), ambient.StepRemove, ambient.StatusEnabled},
		"withdraw, set":                {func(b *breakable) *atomic.Bool { return &b.updateV6 }, told(optedOut("a")), ambient.StepLeave, ambient.StatusEnabled},
		"gone, set":                    {func(b *breakable) *atomic.Bool { return &b.updateV6 }, gone, ambient.StepLeave, ambient.StatusEnabled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, b := newBreakable(t)
			pod := n.pod("a")
			a, _ := n.run()
			n.proxy()
			enrols := test.step == ambient.StepEnter
			if !enrols {
				n.feed <- told(object("a"))
				n.awaitSelection(a, "a")
			}
			test.call(b).Store(true)
			if test.news = map[bool]ambient.Change{true: told(object("a")), false: test.news}[enrols]; len(test.news.Pods)+len(test.news.Gone) == 0 {
				t.Fatal("no news")
			}
			n.feed <- test.news
			n.awaitPods(a, "that the step "+string(test.step)+" has failed", func(pods []Pod) bool {
				return len(pods) == 1 && pods[0].Step == test.step && errors.Is(pods[0].Err, errBroken)
			})
			if pods := a.Pods(); len(pods) != 1 || pods[0].Seen.Status != test.status {
				t.Errorf("the agent says %s, want the status %q", describe(a), test.status)
			}
			if enrols && n.captured(pod) {
				t.Error("the pod is captured, and its probes with it")
			}
			test.call(b).Store(false)
			if enrols {
				n.awaitSelection(a, "a")
				n.connect(pod, 1)
				return
			}
			n.awaitRest(a)
			if left := n.captured(pod) && len(test.news.Gone) == 0; left || n.served(pod) || len(n.members())+len(n.records()) > 0 {
				t.Errorf("captured %t, served %t, members %v, records %v", left, n.served(pod), n.members(), n.records())
			}
		})
	}
}

// TestApplyFails has a pod whose rules cannot be put in place: it is not said to be enrolled, and
// keeps its connections. It is tried again without news.
func TestApplyFails(t *testing.T) {
	t.Parallel()
	n, b := newBreakable(t)
	pod := n.pod("a")
	n.strangers(nil) // so that the host has its plan
	a, _ := n.run()
	n.proxy()
	b.apply.Store(true)
	n.feed <- told(object("a"))
	n.awaitPods(a, "that the plan is not applied", func(pods []Pod) bool {
		return len(pods) == 1 && pods[0].Step == ambient.StepApply && errors.Is(pods[0].Err, errBroken)
	})
	n.connect(pod, 0)
	if got := n.statusesOf("a"); got != nil {
		t.Errorf("statuses %q, want none", got)
	}
	b.apply.Store(false)
	n.awaitSelection(a, "a")
	n.connect(pod, 1)
}

// TestEnterFailsBesideApply has a new pod whose address cannot be entered in a set: the plugin is
// not told that it is enrolled until it is, even if its rules are in place.
func TestEnterFailsBesideApply(t *testing.T) {
	t.Parallel()
	n, b := newBreakable(t)
	pod := n.pod("a")
	delete(n.paths, "a") // so that it is not found
	a, _ := n.run()
	n.proxy()
	n.feed <- told(object("a"))
	b.updateV6.Store(true)
	answer := make(chan error, 1)
	go func() {
		_, err := n.hand(t.Context(), a, "a", pod)
		answer <- err
	}()
	n.awaitPods(a, "that the set is not edited", func(pods []Pod) bool { return len(pods) == 1 && errors.Is(pods[0].Err, errBroken) })
	select {
	case err := <-answer:
		t.Errorf("the plugin got the answer %v", err)
	default:
	}
	if got := n.statusesOf("a"); got != nil {
		t.Errorf("statuses %q, want none", got)
	}
	b.updateV6.Store(false)
	if err := <-answer; err != nil {
		t.Error(err)
	}
	n.connect(pod, 1)
}

// TestListenersLost has a proxy that loses the listeners of one of two pods, and does not notice.
// The agent finds out by itself, tells the proxy of that pod anew, and leaves the other pod alone.
func TestListenersLost(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.options.ListenerRound = 10 * time.Millisecond
	pod, other := n.pod("a"), n.pod("b")
	seen := n.watchStatuses()
	a, _ := n.run()
	proxy := n.standIn(ambienttest.ProxyOptions{})
	n.feed <- told(object("a"), object("b"))
	n.awaitStatus(a, "a", ambient.StatusEnabled)
	n.awaitStatus(a, "b", ambient.StatusEnabled)
	alive := n.open(other)
	want := []ambient.Status{ambient.StatusEnabled}
	for range 2 { // the second time the proxy has longer
		proxy.LoseListeners("a")
		want = append(want, ambient.StatusPending, ambient.StatusEnabled)
		n.await(func() bool { return slices.Equal(seen("a"), want) }, func() string {
			return fmt.Sprintf("the pod has had the statuses %q, want %q; the agent says %s", seen("a"), want, describe(a))
		})
		n.connect(pod, 1)
	}
	n.exchange(alive)
	if got := seen("b"); len(got) != 1 {
		t.Errorf("the other pod has the statuses %q, want that it was enabled once", got)
	}
}

// watchStatuses has an agent that begins later tell which statuses each pod has, one after the
// other, whether they are written to its annotation or not.
func (n *node) watchStatuses() (of func(uid string) []ambient.Status) {
	statuses, observe := map[string][]ambient.Status{}, n.options.Observe
	n.options.Observe = func(p Pod) {
		n.mu.Lock()
		if all := statuses[p.UID]; p.Seen.Status != ambient.NoStatus && (len(all) == 0 || all[len(all)-1] != p.Seen.Status) {
			statuses[p.UID] = append(all, p.Seen.Status)
		}
		n.mu.Unlock()
		observe(p)
	}
	return func(uid string) []ambient.Status {
		n.mu.Lock()
		defer n.mu.Unlock()
		return slices.Clone(statuses[uid])
	}
}

// stopping is a dataplane whose edits of sets wait until the agent ends, once a test has armed it.
type stopping struct {
	hostDataplane
	armed   atomic.Bool
	waiting chan struct{} // gets an element for each
}

func (s *stopping) UpdateSet(ctx context.Context, ns *interception.Netns, owner interception.Owner, set interception.SetName, edit interception.SetEdit) error {
	if s.armed.Load() {
		s.waiting <- struct{}{}
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return s.hostDataplane.UpdateSet(ctx, ns, owner, set, edit)
}

// TestEndOfTheAgentIsNoDoubt ends an agent while it puts a pod back into the host's sets. That it
// does not get there says nothing of the pod: the status stays.
func TestEndOfTheAgentIsNoDoubt(t *testing.T) {
	t.Parallel()
	n, b := newBreakable(t)
	s := &stopping{hostDataplane: b.hostDataplane, waiting: make(chan struct{}, 100)}
	n.options.Sets = s
	var failures atomic.Int32
	observe := n.options.Observe
	n.options.Observe = func(p Pod) {
		if p.Err != nil {
			failures.Add(1)
		}
		observe(p)
	}
	n.pod("a")
	n.proxy()
	a, end := n.run()
	n.feed <- told(object("a"))
	n.awaitStatus(a, "a", ambient.StatusEnabled)
	s.armed.Store(true)
	n.flush(n.options.Host)
	<-s.waiting
	end()
	if got := n.statusesOf("a"); len(got) != 1 {
		t.Errorf("the statuses are %q, want that the end writes none", got)
	}
	if got := failures.Load(); got > 0 {
		t.Errorf("%d failures are told of, want none by the end", got)
	}
}

// TestEndTakesNoStep ends an agent while it tells of the step that removes a pod's rules: it does
// not take that step any more.
func TestEndTakesNoStep(t *testing.T) {
	t.Parallel()
	n, b := newBreakable(t)
	n.pod("a")
	n.proxy()
	observe := n.options.Observe
	removes, ended := make(chan struct{}), make(chan struct{})
	n.options.Observe = func(p Pod) {
		if observe(p); p.Step == ambient.StepRemove {
			close(removes)
			<-ended
		}
	}
	a, err := New(t.Context(), n.options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	n.feed <- told(object("a"))
	n.awaitSelection(a, "a")
	n.feed <- told(optedOut("a"))
	<-removes
	cancel()
	close(ended)
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v", err)
	}
	if b.removals.Load() > 0 {
		t.Error("the agent begins to remove the rules after its end")
	}
}

// TestErrorOfEnrolmentEnds has a pod that cannot be enrolled leave the mesh: no step of the
// withdrawal is told with the error from before.
func TestErrorOfEnrolmentEnds(t *testing.T) {
	t.Parallel()
	n, b := newBreakable(t)
	n.pod("a")
	n.proxy()
	observe := n.options.Observe
	leaving := make(chan Pod, 100)
	n.options.Observe = func(p Pod) {
		if observe(p); !p.Wanted.Enrolled {
			leaving <- p
		}
	}
	a, end := n.run()
	b.updateV6.Store(true)
	n.feed <- told(object("a"))
	n.awaitPods(a, "that the enrolment has failed", func(pods []Pod) bool { return len(pods) == 1 && errors.Is(pods[0].Err, errBroken) })
	b.updateV6.Store(false)
	n.feed <- told(optedOut("a"))
	n.awaitPods(a, "that the pod has left", func(pods []Pod) bool { return len(pods) == 0 })
	end()
	close(leaving)
	steps := 0
	for p := range leaving {
		if steps++; p.Err != nil {
			t.Errorf("the step %q is told with %v", p.Step, p.Err)
		}
	}
	if steps == 0 {
		t.Error("no step is told of")
	}
}
