// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/zds"
)

// awaitSelection waits until exactly these pods are as wanted, and the agent deals with no others.
func (n *node) awaitSelection(a *Agent, uids string) {
	n.t.Helper()
	n.awaitPods(a, "the pods "+uids, func(pods []Pod) bool {
		var served []string
		for _, pod := range pods {
			if pod.Step != "" || pod.Seen.Proxy != ambient.ProxyServes {
				return false
			}
			served = append(served, pod.UID)
		}
		slices.Sort(served)
		return strings.Join(served, " ") == uids
	})
}

// TestSelection changes the labels of a namespace and of its pods, and at each stage tests which
// pods are captured.
func TestSelection(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pods := map[string]func(*ambient.Pod){
		"a": func(*ambient.Pod) {},
		"b": func(p *ambient.Pod) { p.Labels = mode("none") },
		"c": func(p *ambient.Pod) { p.HostNetwork = true },
		"d": func(p *ambient.Pod) { p.Annotations = map[string]string{"sidecar.istio.io/status": "{}"} },
		"e": func(p *ambient.Pod) { p.Labels, p.Namespace = mode("ambient"), "kube-system" },
		"f": func(p *ambient.Pod) { p.Labels = mode("ambient") },
		"g": func(p *ambient.Pod) { p.Phase = "Succeeded" },
		"h": func(p *ambient.Pod) { p.Addresses = nil },
	}
	var all []ambient.Pod
	for uid, change := range pods {
		pod := optedOut(uid)
		if change(&pod); pod.HostNetwork {
			pod.Labels = mode("ambient")
		}
		all = append(all, pod)
		n.pod(uid)
	}
	n.proxy()
	a, _ := n.run()
	shop := func(labels map[string]string) ambient.Change {
		return ambient.Change{Namespaces: []ambient.Namespace{{Name: "shop", Labels: labels}}}
	}
	n.feed <- ambient.Change{Pods: all, Namespaces: []ambient.Namespace{{Name: "kube-system", Labels: mode("ambient")}}, Complete: true}
	if got := a.Pods(); len(got) > 0 {
		t.Errorf("before the namespace is known, the agent deals with %+v", got)
	}
	n.feed <- shop(nil)
	n.awaitSelection(a, "f")
	n.feed <- shop(mode("ambient"))
	n.awaitPods(a, "a and f served, h without an address", func(pods []Pod) bool {
		return len(pods) == 3 && !slices.ContainsFunc(pods, func(p Pod) bool { return (p.Seen.Proxy == ambient.ProxyServes) == (p.UID == "h") })
	})
	if served := n.member("h"); served || n.statusesOf("h") != nil {
		t.Errorf("a pod without an address: member %t, statuses %q", served, n.statusesOf("h"))
	}
	n.feed <- ambient.Change{Pods: []ambient.Pod{optedOut("h")}} // its address is known
	n.awaitSelection(a, "a f h")
	n.feed <- shop(nil)
	n.awaitSelection(a, "f")
	n.feed <- ambient.Change{Pods: []ambient.Pod{optedOut("f")}}
	n.awaitRest(a)
	for uid, want := range map[string][]ambient.Status{
		"a": {ambient.StatusEnabled, ambient.NoStatus}, "b": nil, "c": nil, "d": nil, "e": nil,
		"f": {ambient.StatusEnabled, ambient.NoStatus}, "g": nil, "h": {ambient.StatusEnabled, ambient.NoStatus},
	} {
		if got := n.statusesOf(uid); !slices.Equal(got, want) {
			t.Errorf("pod %s: statuses %q, want %q", uid, got, want)
		}
	}
}

func mode(value string) map[string]string { return map[string]string{"istio.io/dataplane-mode": value} }

func (n *node) statusesOf(uid string) []ambient.Status {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.statuses[uid])
}

// member reports whether a pod has an address in the host's sets.
func (n *node) member(uid string) bool {
	n.t.Helper()
	return slices.ContainsFunc(n.members(), func(member string) bool { return strings.HasSuffix(member, " "+uid) })
}

// TestExcludedLater begins an agent that excludes a namespace with an enrolled pod: the pod is
// withdrawn, and pods of other namespaces stay enrolled.
func TestExcludedLater(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := n.pod("a")
	n.pod("b")
	elsewhere := object("b")
	elsewhere.Namespace = "bank"
	change := told(object("a"), elsewhere)
	change.Namespaces = append(change.Namespaces, ambient.Namespace{Name: "bank"})
	first, end := n.run()
	n.proxy()
	n.feed <- change
	n.awaitSelection(first, "a b")
	end()
	n.options.Policy.ExcludeNamespaces = append(n.options.Policy.ExcludeNamespaces, "shop")
	second, _ := n.run()
	n.feed <- change
	n.awaitSelection(second, "b")
	n.connect(pod, 0)
	if n.captured(pod) || n.member("a") {
		t.Errorf("captured %t, member %t, want neither", n.captured(pod), n.member("a"))
	}
}

// TestFinishedPod has a job end, after which the API server may know no address of it. Nothing is
// left of the job but its namespace, which ends without help, and an agent without a journal tells
// a proxy nothing of it.
func TestFinishedPod(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := n.pod("a")
	n.pod("b")
	first, end := n.run()
	n.proxy()
	n.feed <- told(object("a"), object("b"))
	n.awaitSelection(first, "a b")
	job := object("a")
	job.Phase, job.Addresses, job.Annotations = "Succeeded", nil, map[string]string{"ambient.istio.io/redirection": "enabled"}
	n.feed <- told(job)
	n.awaitSelection(first, "b")
	if n.served(pod) || n.member("a") || !slices.Equal(n.records(), attachments("b")) {
		t.Errorf("served %t, member %t, records %v, want nothing of the job", n.served(pod), n.member("a"), n.records())
	}
	if got := n.statusesOf("a"); !slices.Equal(got, []ambient.Status{ambient.StatusEnabled}) {
		t.Errorf("statuses %q, want that the job's is left", got)
	}
	end()
	n.options.Journal.Directory = t.TempDir()
	var named atomic.Bool
	n.options.Proxy.Observe = func(e zds.Event) {
		if e.Request.Workload.UID == "a" {
			named.Store(true)
		}
	}
	second, _ := n.run()
	n.feed <- told(job, object("b"))
	n.awaitSelection(second, "b")
	if named.Load() {
		t.Error("the proxy was told of the job")
	}
}

// countLooks counts how often an agent that begins later finds a pod as wanted.
func (n *node) countLooks(uid string) *atomic.Int32 {
	looks, observe := new(atomic.Int32), n.options.Observe
	n.options.Observe = func(p Pod) {
		if p.UID == uid && p.Step == "" && p.Seen.Proxy == ambient.ProxyServes {
			looks.Add(1)
		}
		observe(p)
	}
	return looks
}

// tellAndAwait tells of a change, and waits until the agent has looked at the pod once more.
func (n *node) tellAndAwait(a *Agent, looks *atomic.Int32, change ambient.Change) {
	n.t.Helper()
	before := looks.Load()
	n.feed <- change
	n.await(func() bool { return looks.Load() > before }, func() string { return "the agent does not look again: " + describe(a) })
}

// TestLateAnnotation has the feed repeat the agent's own writes late: nothing is done again,
// neither for the proxy nor in the host's sets.
func TestLateAnnotation(t *testing.T) {
	t.Parallel()
	n, b := newBreakable(t)
	n.pod("a")
	n.options.Closed = true // the status is "pending" first
	var requests atomic.Int32
	n.options.Proxy.Observe = func(e zds.Event) {
		if e.Request.Workload.UID == "a" {
			requests.Add(1)
		}
	}
	looks := n.countLooks("a")
	a, _ := n.run()
	n.feed <- told(object("a"))
	n.awaitStatus(a, "a", ambient.StatusPending)
	n.proxy()
	n.awaitSelection(a, "a")
	n.awaitStatus(a, "a", ambient.StatusEnabled)
	asked, edited := requests.Load(), b.updates.Load()
	for _, status := range []string{"pending", "enabled"} {
		late, labelled := object("a"), object("a")
		late.Annotations = map[string]string{"ambient.istio.io/redirection": status}
		n.feed <- told(late)
		labelled.Annotations, labelled.Labels["late"] = late.Annotations, status // which the agent looks at
		n.tellAndAwait(a, looks, told(labelled))
	}
	if got := n.statusesOf("a"); !slices.Equal(got, []ambient.Status{ambient.StatusPending, ambient.StatusEnabled}) || requests.Load() != asked {
		t.Errorf("statuses %q, and %d requests more to the proxy, want nothing more", got, requests.Load()-asked)
	}
	if again := b.updates.Load() - edited; again > 0 || edited == 0 {
		t.Errorf("the sets were edited %d times, and then %d times more", edited, again)
	}
}
