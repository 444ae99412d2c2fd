// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/internal/roster"
	"github.com/meshcni/meshcni/ambient/zds"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
	"github.com/meshcni/meshcni/internal/testing/victim"
)

// TestRulesAreRestoredWithoutFeed has other programs flush the rules of a pod and of the host while
// no agent runs, and again while the next agent waits for its feed. Both times all is restored from
// the record, a new proxy serves the pod, and no status is written.
func TestRulesAreRestoredWithoutFeed(t *testing.T) {
	t.Parallel()
	for name, dataplane := range hostDataplanes(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.dataplane, n.options.Dataplane, n.options.Sets = dataplane, dataplane, dataplane
			if name == "iptables-legacy" { // nothing tells of changes there
				n.options.Round = 100 * time.Millisecond
			}
			pod := n.pod("a")
			first, end := n.run()
			former := n.proxy()
			n.feed <- told(object("a"))
			n.awaitStatus(first, "a", ambient.StatusEnabled)
			end()
			n.connect(pod, 1)
			members := n.members()
			n.flushPod(pod)
			n.flush(n.options.Host)
			if err := former.Close(); err != nil {
				t.Error(err)
			}
			second, _ := n.run()
			n.proxy()
			for again := range 2 {
				if again == 1 {
					n.flushPod(pod)
					n.flush(n.options.Host)
				}
				restored := func() bool { return slices.Equal(n.members(), members) && !differs(n.recorded("a").Plan, n.state(pod)) }
				n.await(restored, func() string { return "not all is restored: " + describe(second) })
				n.awaitKept(second)
				n.connect(pod, 1)
			}
			if got := n.statusesOf("a"); len(got) != 1 {
				t.Errorf("the statuses are %q, want only the one that the first agent wrote", got)
			}
			enabled := object("a")
			enabled.Annotations = map[string]string{ambient.Istio().Status: "enabled"}
			n.feed <- told(enabled)
			n.awaitSelection(second, "a")
			n.connect(pod, 1)
			n.feed <- told(optedOut("a"))
			n.awaitRest(second)
			n.connect(pod, 0)
			if n.captured(pod) || n.served(pod) || len(n.members())+len(n.records()) > 0 {
				t.Errorf("captured %t, served %t, members %v, records %v, want nothing", n.captured(pod), n.served(pod), n.members(), n.records())
			}
		})
	}
}

// flushPod removes the agent's rules from a pod, as another program may.
func (n *node) flushPod(pod *dataplanetest.Pod) {
	n.t.Helper()
	inside, err := interception.OpenNetns(pod.Path(), interception.NetnsOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	n.flush(inside)
	if err := inside.Close(); err != nil {
		n.t.Error(err)
	}
}

// awaitKept waits until pod a is served by its record alone.
func (n *node) awaitKept(a *Agent) {
	n.t.Helper()
	n.awaitPods(a, "that pod a is served by its record", func(pods []Pod) bool {
		return slices.ContainsFunc(pods, func(p Pod) bool {
			return p.UID == "a" && p.Wanted.Kept && p.Step == "" && p.Seen.Rules == ambient.PlannedRules && p.Seen.Proxy == ambient.ProxyServes
		})
	})
}

// TestKeptPodIsToldWithItsServiceAccount has a proxy that begins while no feed tells of the pod: by
// another service account it would take the pod for another workload.
func TestKeptPodIsToldWithItsServiceAccount(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.pod("a")
	first, end := n.run()
	former := n.proxy()
	n.feed <- told(object("a"))
	n.awaitStatus(first, "a", ambient.StatusEnabled)
	end()
	if err := former.Close(); err != nil {
		t.Error(err)
	}
	var workload atomic.Value
	n.options.Proxy.Observe = func(e zds.Event) {
		if e.Request.Kind == zds.KindAdd {
			workload.Store(e.Request.Workload)
		}
	}
	second, _ := n.run()
	n.proxy()
	n.awaitKept(second)
	want := zds.Workload{UID: "a", Namespace: "shop", Name: "pod-a", ServiceAccount: "account"}
	if got := workload.Load(); got != want {
		t.Errorf("the proxy is told of %+v, want %+v", got, want)
	}
}

// TestStaticPodWithoutFeed has a static pod, of which the feed tells the mirror: without a feed it
// is found by the runtime's UID.
func TestStaticPodWithoutFeed(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := n.pod("of-the-runtime")
	mirror := object("a")
	mirror.Annotations = map[string]string{roster.MirrorAnnotation: "of-the-runtime"}
	first, end := n.run()
	n.proxy()
	n.feed <- told(mirror)
	n.awaitStatus(first, "a", ambient.StatusEnabled)
	end()
	n.flushPod(pod)
	second, _ := n.run()
	n.awaitKept(second)
	n.connect(pod, 1)
}

// TestLeavingPodWithoutFeed has an agent end while a pod leaves the mesh. The next one leaves the
// pod as it is until the feed tells whether it still leaves.
func TestLeavingPodWithoutFeed(t *testing.T) {
	t.Parallel()
	for name, returns := range map[string]bool{"it leaves": false, "it comes back": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			pod, other := n.pod("a"), n.pod("b")
			first, end := n.run()
			n.proxy()
			n.feed <- told(object("a"), object("b"))
			n.awaitSelection(first, "a b")
			relayed := n.open(pod)
			n.feed <- told(optedOut("a"))
			n.awaitPods(first, "that it waits for the connection's end", func(pods []Pod) bool {
				return slices.ContainsFunc(pods, func(p Pod) bool { return p.UID == "a" && p.Step == ambient.StepAwaitDrained })
			})
			end()
			second, _ := n.run()
			n.await(func() bool { return served(second.Pods()) == 1 }, func() string { return "the other pod is not served: " + describe(second) })
			n.exchange(relayed)
			n.connectOut(pod, 0)
			if err := relayed.Close(); err != nil {
				t.Error(err)
			}
			n.flushPod(pod)
			n.flushPod(other) // its rules are back after the agent has heard of both
			n.await(func() bool { return n.captured(other) }, func() string { return "the other pod is not captured: " + describe(second) })
			if n.captured(pod) {
				t.Error("a pod that leaves has its rules back")
			}
			n.connectOut(pod, 0)
			if returns {
				n.feed <- told(object("a"), object("b"))
				n.awaitSelection(second, "a b")
				n.connect(pod, 1)
				if n.recorded("a").Leaving {
					t.Error("the record says that the pod leaves")
				}
				return
			}
			n.feed <- told(optedOut("a"), object("b"))
			n.awaitSelection(second, "b")
			if n.captured(pod) || n.served(pod) || n.member("a") || !slices.Equal(n.records(), attachments("b")) {
				t.Errorf("captured %t, served %t, members %v, records %v, want nothing", n.captured(pod), n.served(pod), n.members(), n.records())
			}
		})
	}
}

// TestKilledWithoutFeed kills agents (SIGKILL) before each step that takes a pod out of the mesh,
// and before those that take it in. Without a feed the next agent leaves the first pod as it is and
// finishes what was begun with the second one.
func TestKilledWithoutFeed(t *testing.T) {
	t.Parallel()
	if task, is := victim.Task(); is {
		beKilled(t, task)
		return
	}
	for _, step := range []ambient.Step{
		ambient.StepDrain, ambient.StepWithdraw, ambient.StepRemove, ambient.StepLeave, ambient.StepClear, ambient.StepClose,
	} {
		killedWithoutFeed(t, step, false)
	}
	for _, step := range []ambient.Step{ambient.StepApply, ambient.StepEnabled} {
		killedWithoutFeed(t, step, true)
	}
}

// killedWithoutFeed kills an agent before a step of pod a, and runs one without a feed. Pod b is
// enrolled all the while.
func killedWithoutFeed(t *testing.T, step ambient.Step, enrolled bool) {
	t.Helper()
	n := newNode(t)
	host := sandboxtest.NewPod(t)
	n.options.Host = host.Netns
	pods := map[string]*dataplanetest.Pod{"a": n.pod("a"), "b": n.pod("b")}
	n.proxy()
	first, end := n.run()
	if n.feed <- told(optedOut("a"), object("b")); !enrolled {
		n.feed <- told(object("a"))
	}
	n.awaitSelection(first, map[bool]string{true: "b", false: "a b"}[enrolled])
	end()
	n.killAt(step, life{
		Dataplane: "nftables", Socket: n.options.Socket, Journal: n.options.Journal.Directory, Host: host.Namespace.Path(),
		Pods: n.paths, Enrolled: enrolled,
	})
	before := n.state(pods["a"])
	second, stop := n.run()
	if enrolled {
		n.awaitKept(second)
		n.connectOut(pods["a"], 1)
	} else {
		n.await(func() bool { return served(second.Pods()) == 1 }, func() string { return "pod b is not served: " + describe(second) })
		n.flushPod(pods["b"]) // when its rules are back, the agent has had the time to look at pod a
		n.await(func() bool { return n.captured(pods["b"]) }, func() string { return "pod b is not captured: " + describe(second) })
		if after := n.state(pods["a"]); differs(before.Plan(), after) {
			t.Errorf("killed before %s: the pod that leaves has other rules than before:\n%s", step, after.Plan())
		}
		if !n.recorded("a").Leaving {
			t.Errorf("killed before %s: the record does not say that the pod leaves", step)
		}
	}
	n.connectOut(pods["b"], 1)
	n.feed <- told(optedOut("a"), object("b"))
	n.awaitSelection(second, "b")
	if n.captured(pods["a"]) || n.member("a") || !slices.Equal(n.records(), attachments("b")) {
		t.Errorf("killed before %s: captured %t, members %v, records %v, want nothing of the pod", step, n.captured(pods["a"]), n.members(), n.records())
	}
	stop()
}

// killAt starts an agent and kills it when it is about to take a step of pod a.
func (n *node) killAt(step ambient.Step, l life) {
	n.t.Helper()
	l.Until, l.Reached = step, filepath.Join(n.t.TempDir(), "reached")
	task, err := json.Marshal(l)
	if err != nil {
		n.t.Fatal(err)
	}
	process, err := victim.Start(n.t.Context(), n.t.Name(), string(task))
	if err != nil {
		n.t.Fatal(err)
	}
	end, err := process.Run(victim.Ending{When: func() {
		eventually(n.t, func() error {
			_, err := os.Stat(l.Reached)
			return err
		})
	}})
	if err != nil || !end.Killed {
		n.t.Fatalf("killed before %s: %+v, %v", step, end, err)
	}
}

// until returns an Observe that stops the worker of pod a before a step, and says so.
func (l life) until() func(Pod) {
	return func(p Pod) {
		if p.UID == "a" && p.Step == l.Until && p.Wanted.Enrolled == l.Enrolled && p.Err == nil {
			file, err := os.OpenFile(l.Reached, os.O_CREATE|os.O_EXCL, 0o600)
			if err == nil {
				_ = file.Close() // nothing was written
			}
			if err == nil || errors.Is(err, fs.ErrExist) {
				<-context.Background().Done() // until it is killed
			}
		}
	}
}
