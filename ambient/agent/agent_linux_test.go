// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest"
	"github.com/meshcni/meshcni/ambient/zds"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/interception/podnetns"
)

// TestPodComesAndGoes enrols a running pod that the feed tells of, and withdraws it, with real
// connections at each stage.
func TestPodComesAndGoes(t *testing.T) {
	t.Parallel()
	podComesAndGoes(t, newNode(t))
}

func podComesAndGoes(t *testing.T, n *node) {
	t.Helper()
	pod := n.pod("a")
	a, _ := n.run()
	n.proxy()
	n.connect(pod, 0)
	n.feed <- told(object("a"))
	n.awaitStatus(a, "a", ambient.StatusEnabled)
	n.connect(pod, 1)
	if diff := cmp.Diff([]string{"10.244.1.10 a", "fd00:10:244:1::a a"}, n.members()); diff != "" {
		t.Errorf("members of the host's sets (-want +got):\n%s", diff)
	}
	if got := n.records(); !slices.Equal(got, attachments("a")) {
		t.Errorf("records of %v", got)
	}
	n.feed <- told(optedOut("a"))
	n.awaitRest(a)
	n.connect(pod, 0)
	if n.captured(pod) || n.served(pod) || len(n.members()) > 0 || len(n.records()) > 0 {
		t.Errorf("captured %t, served %t, members %v, records %v, want nothing", n.captured(pod), n.served(pod), n.members(), n.records())
	}
	if diff := cmp.Diff([]ambient.Status{ambient.StatusEnabled, ambient.NoStatus}, n.statuses["a"]); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
	n.feed <- told(object("a"))
	n.awaitStatus(a, "a", ambient.StatusEnabled)
	n.connect(pod, 1)
}

func attachments(uids ...string) (all []journal.Attachment) {
	for _, uid := range uids {
		all = append(all, attachment(uid))
	}
	return all
}

// TestConnectionsLiveOn withdraws a pod with a connection through the proxy, which is waited for,
// and enrols one with a direct connection, which is spared.
func TestConnectionsLiveOn(t *testing.T) {
	t.Parallel()
	connectionsLiveOn(t, newNode(t))
}

func connectionsLiveOn(t *testing.T, n *node) {
	t.Helper()
	pod := n.pod("a")
	a, _ := n.run()
	n.proxy()
	direct := n.open(pod)
	n.feed <- told(object("a"))
	n.awaitStatus(a, "a", ambient.StatusEnabled)
	n.exchange(direct)
	before := n.relayed(pod)
	relayed := n.open(pod)
	if n.relayed(pod) == before {
		t.Fatal("the second connection does not go through the proxy")
	}
	n.feed <- told(optedOut("a"))
	n.awaitPods(a, "that it waits for the connection's end", func(pods []Pod) bool {
		return len(pods) == 1 && pods[0].Step == ambient.StepAwaitDrained
	})
	n.exchange(relayed)
	n.exchange(direct)
	n.connect(pod, 0)
	if !n.captured(pod) {
		t.Error("the rules are gone before the connection")
	}
	if err := relayed.Close(); err != nil {
		t.Error(err)
	}
	n.awaitRest(a)
	n.exchange(direct)
	if n.captured(pod) {
		t.Error("the rules are still there")
	}
}

// TestDrainTimeout withdraws a pod whose connection does not end.
func TestDrainTimeout(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.options.DrainTimeout = 50 * time.Millisecond
	pod := n.pod("a")
	a, _ := n.run()
	n.proxy()
	n.feed <- told(object("a"))
	n.awaitStatus(a, "a", ambient.StatusEnabled)
	n.open(pod)
	n.feed <- told(optedOut("a"))
	n.awaitRest(a)
	if n.captured(pod) {
		t.Error("the rules are still there")
	}
}

// hand hands a pod's namespace over, as the plugin does.
func (n *node) hand(ctx context.Context, a *Agent, uid string, pod *dataplanetest.Pod) (interception.Decision, error) {
	n.t.Helper()
	file, err := os.Open(pod.Path())
	if err != nil {
		n.t.Fatal(err)
	}
	return a.Enrol(ctx, podnetns.Pod{Namespace: "shop", Name: "pod-" + uid, UID: uid, IPs: addresses}, file)
}

// TestEvent enrols a new pod that the plugin reports before the feed tells of it, and before the
// API server knows its addresses.
func TestEvent(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := n.pod("a")
	delete(n.paths, "a") // so that it is not found
	a, _ := n.run()
	n.proxy()
	answer := make(chan error, 1)
	go func() {
		decision, err := n.hand(t.Context(), a, "a", pod)
		if err == nil && !decision.Capture {
			err = errors.New(string(decision.Reason))
		}
		answer <- err
	}()
	without := object("a")
	without.Addresses = nil
	n.feed <- told(without)
	if err := <-answer; err != nil {
		t.Fatal(err)
	}
	n.connect(pod, 1) // from the answer on
	if got := n.members(); len(got) != 2 {
		t.Errorf("members %v, want the two addresses that the plugin told", got)
	}
	if pods := a.Pods(); len(pods) != 1 || pods[0].Step != "" || pods[0].Seen.Proxy != ambient.ProxyServes {
		t.Errorf("the agent says %s", describe(a))
	}
	living := n.open(pod)
	if decision, err := n.hand(t.Context(), a, "a", pod); err != nil || !decision.Capture {
		t.Errorf("the same namespace again: %+v, %v", decision, err)
	}
	n.exchange(living)
	other := n.pod("a")
	if decision, err := n.hand(t.Context(), a, "a", other); err != nil || !decision.Capture {
		t.Errorf("another namespace: %+v, %v", decision, err)
	}
	n.connect(other, 1)
	n.feed <- ambient.Change{Gone: []string{"a"}, Complete: true}
	n.awaitRest(a)
	if n.served(other) || len(n.members()) > 0 || len(n.records()) > 0 {
		t.Errorf("served %t, members %v, records %v, want nothing of a pod that is gone", n.served(other), n.members(), n.records())
	}
}

// TestEventWithoutUID has a plugin that knows the pod's name alone, as Istio's does, while the feed
// still tells of the pod that had the name before.
func TestEventWithoutUID(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := n.pod("a")
	delete(n.paths, "a") // so that it is not found
	a, _ := n.run()
	n.proxy()
	former, finished := object("b"), object("c")
	former.Name, finished.Name, finished.Phase = "pod-a", "pod-a", "Succeeded"
	n.feed <- told(former, finished)
	answer := make(chan error, 1)
	go func() {
		file, err := os.Open(pod.Path())
		if err == nil {
			_, err = a.Enrol(t.Context(), podnetns.Pod{Namespace: "shop", Name: "pod-a", IPs: addresses}, file)
		}
		answer <- err
	}()
	n.feed <- told(object("a"))
	if err := <-answer; err != nil {
		t.Fatal(err)
	}
	n.connect(pod, 1)
	for _, one := range a.Pods() {
		if serves := one.Seen.Proxy == ambient.ProxyServes; serves != (one.UID == "a") {
			t.Errorf("the proxy serves pod %s: %t", one.UID, serves)
		}
	}
}

func TestEventThatIsNotAnswered(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.options.TellTimeout = 10 * time.Millisecond
	pod := n.pod("a")
	a, _ := n.run()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := n.hand(ctx, a, "a", pod); !errors.Is(err, ErrUnknownPod) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("before the feed tells of the pod: %v", err)
	}
	n.feed <- told(object("a"), optedOut("b"))
	ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := n.hand(ctx, a, "a", pod); !errors.Is(err, zds.ErrNeverConnected) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a proxy: %v", err)
	}
	if decision, err := n.hand(t.Context(), a, "b", pod); err != nil || decision.Capture || decision.Reason != ambient.ReasonNotSelected {
		t.Errorf("a pod that is not selected: %+v, %v", decision, err)
	}
	if n.captured(pod) {
		t.Error("the pod is captured, and nobody serves it")
	}
}

// TestOneRefused has a proxy that refuses one pod: another one is served, and the first one stays
// as it was.
func TestOneRefused(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.options.TellTimeout = 50 * time.Millisecond
	pods := map[string]*dataplanetest.Pod{"a": n.pod("a"), "b": n.pod("b")}
	a, _ := n.run()
	n.standIn(ambienttest.ProxyOptions{Refuse: func(w zds.Workload) string { return map[string]string{"a": "not a"}[w.UID] }})
	invalid := object("d")
	invalid.Annotations = map[string]string{"traffic.istio.io/excludeOutboundPorts": "many"}
	n.pod("d")
	n.paths["e"] = n.pod("f").Path() // of which only one can be right
	n.feed <- told(object("a"), object("b"), object("c"), invalid, object("e"), object("f"))
	n.awaitStatus(a, "b", ambient.StatusEnabled)
	n.connect(pods["b"], 1)
	n.connect(pods["a"], 0)
	n.awaitPods(a, "why each pod is not enrolled", func(all []Pod) bool {
		errs := map[string]error{}
		for _, one := range all {
			errs[one.UID] = one.Err
		}
		_, notFound := errors.AsType[*podnetns.RefusalError](errs["c"])
		_, doesNotParse := errors.AsType[*interception.ParseError](errs["d"])
		return len(all) == 6 && (errs["e"] == nil) != (errs["f"] == nil) && errors.Is(errs["a"], zds.ErrRefused) && errs["b"] == nil && notFound && doesNotParse
	})
	if n.captured(pods["a"]) {
		t.Error("a pod that the proxy refuses is captured")
	}
}

// TestRestart ends the agent, and begins another one: from the journal and the kernel.
func TestRestart(t *testing.T) {
	t.Parallel()
	restart(t, newNode(t))
}

func restart(t *testing.T, n *node) {
	t.Helper()
	pods := map[string]*dataplanetest.Pod{"a": n.pod("a"), "b": n.pod("b"), "c": n.pod("c")}
	first, end := n.run()
	n.proxy()
	n.feed <- told(object("a"), object("b"), object("c"))
	for uid := range pods {
		n.awaitStatus(first, uid, ambient.StatusEnabled)
	}
	end()
	n.connect(pods["a"], 1)
	connected := make(chan struct{}, 8)
	n.options.Proxy.Observe = func(e zds.Event) {
		if e.Request.Kind == zds.KindSnapshotSent {
			connected <- struct{}{}
		}
	}
	second, _ := n.run()
	<-connected // the feed has told nothing yet
	for uid, pod := range pods {
		if !n.served(pod) || !n.captured(pod) {
			t.Errorf("pod %s: served %t, captured %t, want both before the feed tells of it", uid, n.served(pod), n.captured(pod))
		}
	}
	changed := object("a")
	changed.Annotations = map[string]string{"traffic.istio.io/excludeOutboundPorts": "443"} // too late
	withdrawn := optedOut("b")
	withdrawn.Annotations = map[string]string{"ambient.istio.io/redirection": "enabled"} // by the first agent
	incomplete := told(changed, withdrawn)
	incomplete.Complete = false
	n.feed <- incomplete
	n.awaitStatus(second, "b", ambient.NoStatus)
	n.awaitPods(second, "a as wanted, c untouched", func(all []Pod) bool {
		return len(all) == 2 && !slices.ContainsFunc(all, func(p Pod) bool { return p.UID == "a" && p.Seen.Proxy != ambient.ProxyServes })
	})
	n.connect(pods["a"], 1)
	n.connect(pods["b"], 0)
	n.connect(pods["c"], 1)
	if n.captured(pods["b"]) {
		t.Error("a pod that was withdrawn while no agent ran is captured")
	}
	n.feed <- ambient.Change{Complete: true}
	n.awaitPods(second, "nothing of c", func(all []Pod) bool { return len(all) == 1 })
	if n.served(pods["c"]) || !slices.Equal(n.records(), attachments("a")) {
		t.Errorf("c is served: %t; records of %v, want that of a", n.served(pods["c"]), n.records())
	}
}

// TestFirstStart begins an agent without a journal, and a proxy that comes from another agent: it
// is told of its pods before it is told that these are all.
func TestFirstStart(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.pod("a")
	var requests []zds.Request
	n.options.Proxy.Observe = func(e zds.Event) {
		n.mu.Lock()
		defer n.mu.Unlock()
		requests = append(requests, e.Request)
		n.news()
	}
	a, _ := n.run()
	n.proxy()
	n.feed <- ambient.Change{Namespaces: told().Namespaces}
	n.feed <- told(object("a"))
	n.awaitStatus(a, "a", ambient.StatusEnabled)
	complete := -1
	n.await(func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		complete = slices.IndexFunc(requests, func(r zds.Request) bool { return r.Kind == zds.KindSnapshotSent })
		return complete >= 0
	}, func() string { return "the proxy is not told that these are all" })
	n.mu.Lock()
	defer n.mu.Unlock()
	of := slices.IndexFunc(requests, func(r zds.Request) bool { return r.Workload.UID == "a" })
	if of < 0 || complete >= 0 && complete < of { // what has not been said yet comes later
		t.Errorf("the proxy is told %v, want pod a first", requests)
	}
}

// TestFirstStartByEvent begins an agent without a journal, which a plugin asks about a pod: there
// is nothing that the proxy should forget.
func TestFirstStartByEvent(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	var forgotten atomic.Bool
	n.options.Proxy.Observe = func(e zds.Event) {
		if e.Request.Kind == zds.KindDel {
			forgotten.Store(true)
		}
	}
	a, _ := n.run()
	n.proxy()
	n.enrol(a, n.bare(0))
	if forgotten.Load() {
		t.Error("the proxy was told to forget the pod")
	}
}

// TestProxyIsReplaced has a pod that stays captured while no proxy serves it.
func TestProxyIsReplaced(t *testing.T) {
	t.Parallel()
	proxyIsReplaced(t, newNode(t))
}

func proxyIsReplaced(t *testing.T, n *node) {
	t.Helper()
	pod := n.pod("a")
	a, _ := n.run()
	old := n.proxy()
	n.feed <- told(object("a"))
	n.awaitStatus(a, "a", ambient.StatusEnabled)
	if err := old.Close(); err != nil {
		t.Error(err)
	}
	n.awaitSeen(a, "a", ambient.StatusPending)
	if !n.captured(pod) {
		t.Error("the pod is not captured while the proxy is away")
	}
	n.proxy()
	n.awaitSeen(a, "a", ambient.StatusEnabled)
	n.connect(pod, 1)
}

// TestFlushOfTheHost has other programs remove the host's rules with the sets, and then a member of
// a set, long before a round.
func TestFlushOfTheHost(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := n.pod("a")
	a, _ := n.run()
	n.proxy()
	n.feed <- told(object("a"))
	n.awaitStatus(a, "a", ambient.StatusEnabled)
	returned := func() bool { return len(n.members()) == 2 }
	n.flush(n.options.Host)
	n.await(returned, func() string { return "after a flush the agent says " + describe(a) })
	edit := interception.SetEdit{Remove: map[netip.Addr]string{addresses[0]: "a"}}
	if err := n.options.Sets.UpdateSet(t.Context(), n.options.Host, owner, ambient.ProbeSet(interception.IPv4), edit); err != nil {
		t.Fatal(err)
	}
	n.await(returned, func() string { return "after an edit the agent says " + describe(a) })
	n.connect(pod, 1)
}

// TestFlushIsNoticed removes the rules of a pod long before a round.
func TestFlushIsNoticed(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := n.pod("a")
	a, _ := n.run()
	n.proxy()
	n.feed <- told(object("a"))
	n.awaitStatus(a, "a", ambient.StatusEnabled)
	namespace, err := interception.OpenNetns(pod.Path(), interception.NetnsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close()
	n.flush(namespace)
	n.await(func() bool { return n.captured(pod) }, func() string { return "the agent says " + describe(a) })
	n.connect(pod, 1)
}

// TestFlushOfNewPodIsNoticed removes the rules of a pod right after the plugin's answer, when the
// agent does not watch its namespace yet.
func TestFlushOfNewPodIsNoticed(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := n.pod("a")
	delete(n.paths, "a")
	a, _ := n.run()
	n.proxy()
	n.feed <- told(object("a"))
	if _, err := n.hand(t.Context(), a, "a", pod); err != nil {
		t.Fatal(err)
	}
	n.flushPod(pod)
	n.await(func() bool { return n.captured(pod) }, func() string { return "the agent says " + describe(a) })
	n.connect(pod, 1)
	n.flushPod(pod) // long before a round
	n.await(func() bool { return n.captured(pod) }, func() string { return "after another flush, the agent says " + describe(a) })
}

// TestWithoutNotices has an agent without CAP_NET_BROADCAST, which it gives up on a thread that
// ends: it finds in a round what a program has removed.
func TestWithoutNotices(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.options.Round = 100 * time.Millisecond
	unprivileged := func() (*Agent, error) {
		type made struct {
			agent *Agent
			err   error
		}
		done := make(chan made)
		go func() {
			runtime.LockOSThread()
			header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			var data [2]unix.CapUserData
			err := unix.Capget(&header, &data[0])
			data[0].Effective &^= 1 << unix.CAP_NET_BROADCAST
			if err := errors.Join(err, unix.Capset(&header, &data[0])); err != nil {
				done <- made{nil, err}
				return
			}
			a, err := New(t.Context(), n.options)
			done <- made{a, err}
		}()
		result := <-done
		return result.agent, result.err
	}
	if _, err := unprivileged(); !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "CAP_NET_BROADCAST") {
		t.Fatalf("without WithoutNotices: %v", err)
	}
	var refusal error
	n.options.WithoutNotices = func(err error) { refusal = err }
	a, err := unprivileged()
	if err != nil || !errors.Is(refusal, os.ErrPermission) {
		t.Fatalf("with WithoutNotices: %v, and it is told %v", err, refusal)
	}
	n.begin(a)
	pod := n.pod("a")
	n.proxy()
	n.feed <- told(object("a"))
	n.awaitStatus(a, "a", ambient.StatusEnabled)
	n.flush(n.options.Host)
	n.await(func() bool { return len(n.members()) == 2 }, func() string { return "the agent says " + describe(a) })
	n.connect(pod, 1)
}
