// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"sync/atomic"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
)

// TestRetiringKeepsItsPods has an agent retire that is started where two pods are captured: it
// restores their rules, lets go the one that is not wanted any more, for good, and the one that it
// is told to withdraw, and enrols no other.
func TestRetiringKeepsItsPods(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	one, two, third := n.pod("a"), n.pod("b"), n.pod("c")
	first, end := n.run()
	n.proxy()
	n.feed <- told(object("a"), object("b"), optedOut("c"))
	n.awaitStatus(first, "a", ambient.StatusEnabled)
	n.awaitStatus(first, "b", ambient.StatusEnabled)
	end()
	n.options.Retiring = true
	a, _ := n.run()
	n.feed <- told(object("a"), object("b"), object("c"))
	n.awaitSelection(a, "a b")
	n.flushPod(one)
	n.await(func() bool { return n.captured(one) }, func() string { return "the rules are not restored: " + describe(a) })
	n.feed <- ambient.Change{Pods: []ambient.Pod{optedOut("b")}}
	n.awaitSelection(a, "a")
	n.feed <- ambient.Change{Pods: []ambient.Pod{object("b")}}
	a.Look("c")
	if err := a.Withdraw(t.Context(), func(Pod) {}, "a"); err != nil {
		t.Error(err)
	}
	if n.captured(one) || n.captured(two) || n.captured(third) || len(n.records())+len(n.members()) > 0 || len(a.Pods()) > 0 {
		t.Errorf("captured %t, %t, %t, records %v, members %v, pods %s, want nothing", n.captured(one), n.captured(two), n.captured(third), n.records(),
			n.members(), describe(a))
	}
}

// TestRetiringGoesOnWithAWithdrawal has an agent end while a pod that it withdraws has a
// connection. The next one retires: it does not take the pod back.
func TestRetiringGoesOnWithAWithdrawal(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := n.pod("a")
	first, end := n.run()
	n.proxy()
	n.feed <- told(object("a"))
	n.awaitStatus(first, "a", ambient.StatusEnabled)
	connection := n.open(pod)
	n.feed <- ambient.Change{Pods: []ambient.Pod{optedOut("a")}}
	drains := func(pods []Pod) bool { return len(pods) == 1 && pods[0].Step == ambient.StepAwaitDrained }
	n.awaitPods(first, "that the pod drains", drains)
	end()
	n.options.Retiring = true
	a, _ := n.run()
	n.feed <- told(object("a"))
	n.awaitPods(a, "that the pod drains", drains)
	n.exchange(connection)
	if err := connection.Close(); err != nil {
		t.Error(err)
	}
	n.awaitRest(a)
	n.connect(pod, 0)
}

// TestRetiringKeepsTheProxy has a retiring agent withdraw a pod without connections: the proxy
// forgets the pod once no tunnel can come to it any more.
func TestRetiringKeepsTheProxy(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := n.pod("a")
	first, end := n.run()
	n.proxy()
	n.feed <- told(object("a"))
	n.awaitStatus(first, "a", ambient.StatusEnabled)
	end()
	held := n.hold(ambient.StepAwaitDrained)
	n.options.Retiring = true
	a, _ := n.run()
	n.feed <- told(optedOut("a"))
	n.awaitPods(a, "that the pod has drained, and waits", func(pods []Pod) bool {
		return len(pods) == 1 && pods[0].Step == ambient.StepAwaitDrained && pods[0].Seen.Drained
	})
	if !n.served(pod) {
		t.Error("the proxy has forgotten the pod")
	}
	held.Store(ambient.Step(""))
	n.awaitRest(a)
	if n.served(pod) || n.captured(pod) {
		t.Error("the pod is served, or has rules")
	}
}

// TestHeldPodWaits has a pod that another form of capture has: the proxy serves it, it gets rules
// that capture nothing in its turn, and is captured once the tunnels to it go to that proxy.
func TestHeldPodWaits(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := n.pod("a")
	held := n.hold(ambient.StepAwaitTurn)
	a, _ := n.run()
	n.proxy()
	n.feed <- told(object("a"))
	n.awaitPods(a, "that the pod waits for its turn", func(pods []Pod) bool {
		return slices.ContainsFunc(pods, func(p Pod) bool { return p.Step == ambient.StepAwaitTurn && p.Seen.Proxy == ambient.ProxyServes })
	})
	if n.captured(pod) || len(n.members()) > 0 {
		t.Errorf("a pod that is held is captured, or has the members %v", n.members())
	}
	held.Store(ambient.StepPrepare)
	a.Look("a")
	n.awaitPods(a, "that the pod is prepared", func(pods []Pod) bool {
		return slices.ContainsFunc(pods, func(p Pod) bool { return p.Step == ambient.StepAwaitTurn && p.Seen.Rules == ambient.DrainingRules })
	})
	n.expectPrepared(pod)
	held.Store(ambient.Step(""))
	a.Look("a")
	n.awaitStatus(a, "a", ambient.StatusEnabled)
	n.connect(pod, 1)
}

// TestHeldNewPodWaits is TestHeldPodWaits with a pod that the plugin hands over.
func TestHeldNewPodWaits(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := n.pod("a")
	delete(n.paths, "a")
	held := n.hold(ambient.StepAwaitTurn)
	a, _ := n.run()
	n.proxy()
	n.feed <- told(object("a"))
	n.await(func() bool { return a.server.Status().Connections == 1 }, func() string { return "no proxy has connected" })
	answer := n.handBeside(a, pod)
	n.awaitPods(a, "that the pod waits for its turn", func(pods []Pod) bool {
		return len(pods) == 1 && pods[0].Step == ambient.StepAwaitTurn
	})
	if n.captured(pod) || len(n.members()) > 0 {
		t.Errorf("a pod that is held is captured, or has the members %v", n.members())
	}
	held.Store(ambient.StepPrepare)
	a.Look("a")
	n.awaitPods(a, "that the pod is prepared", func(pods []Pod) bool {
		return slices.ContainsFunc(pods, func(p Pod) bool { return p.Step == ambient.StepAwaitTurn && p.Seen.Rules == ambient.DrainingRules })
	})
	n.expectPrepared(pod)
	held.Store(ambient.Step(""))
	a.Look("a")
	if err := <-answer; err != nil {
		t.Error(err)
	}
	n.connect(pod, 1)
}

// expectPrepared expects that a pod has the draining plan, and is not captured.
func (n *node) expectPrepared(pod *dataplanetest.Pod) {
	n.t.Helper()
	record := n.recorded("a")
	if drifts := interception.Diff(record.Plan.Draining(), n.state(pod)); len(drifts) > 0 || !record.Leaving || len(n.members()) > 0 {
		n.t.Errorf("a pod that is held has other rules than the draining plan: %v, or the members %v; leaving is %t in the record",
			drifts, n.members(), record.Leaving)
	}
	n.connect(pod, 0)
}

// hold has the agent's pods wait, until the test stores something else.
func (n *node) hold(what ambient.Step) *atomic.Value {
	held := new(atomic.Value)
	held.Store(what)
	n.options.Held = func(string) ambient.Step {
		now, _ := held.Load().(ambient.Step)
		return now
	}
	return held
}
