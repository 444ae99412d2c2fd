// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/internal/roster"
	"github.com/meshcni/meshcni/interception/podnetns"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// sandboxOf is pod a with one of its sandboxes, as the plugin names it.
func sandboxOf(container string) podnetns.Pod {
	return podnetns.Pod{Namespace: "shop", Name: "pod-a", UID: "a", IPs: addresses, Containers: []string{container}}
}

// arrive enrols pod a in a sandbox, as the plugin does.
func (n *node) arrive(a *Agent, path, container string) {
	n.t.Helper()
	file, err := os.Open(path)
	if err == nil {
		_, err = a.Enrol(n.t.Context(), sandboxOf(container), file)
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// leave ends a sandbox, as the plugin does, and reports whether the agent held it. Without a path
// the runtime has named no namespace.
func (n *node) leave(a *Agent, pod podnetns.Pod, path string) bool {
	n.t.Helper()
	var file *os.File
	if path != "" {
		var err error
		if file, err = os.Open(path); err != nil {
			n.t.Fatal(err)
		}
		defer file.Close()
	}
	held, err := a.Leave(n.t.Context(), pod, file)
	if err != nil {
		n.t.Fatal(err)
	}
	return held
}

// awaitLeft waits until the agent holds nothing of a sandbox of pod a.
func (n *node) awaitLeft(a *Agent, path string, open int) {
	n.t.Helper()
	n.awaitPods(a, "nothing of the sandbox", func(all []Pod) bool {
		return len(all) == 1 && all[0].Wanted.Gone && all[0].Step == "" && !all[0].Seen.Open && len(n.records()) == 0
	})
	if got := sandboxtest.Descriptors(n.t, path); got != open {
		n.t.Errorf("%d descriptors of the namespace are open, want %d", got, open)
	}
}

// TestE17SandboxEnds ends the sandbox of an enrolled pod: when the plugin's DEL is answered,
// another pod can have its addresses. The feed still tells of the pod, and nothing is enrolled
// until it has another sandbox.
func TestE17SandboxEnds(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]func(string) string{
		"by its namespace": func(path string) string { return path }, "by its container": func(string) string { return "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			first, second := n.pod("a"), n.pod("b")
			n.paths["a"] = first.Path() // a search would find it
			looks, observe := new(atomic.Int32), n.options.Observe
			n.options.Observe = func(p Pod) {
				if p.Wanted.Gone && p.Step == "" {
					looks.Add(1)
				}
				observe(p)
			}
			open := sandboxtest.Descriptors(t, first.Path())
			a, _ := n.run()
			n.proxy()
			n.feed <- told(object("a"))
			n.arrive(a, first.Path(), "one")
			n.connect(first, 1)
			if !n.leave(a, sandboxOf("one"), path(first.Path())) {
				t.Error("the agent does not know the sandbox")
			}
			if got := n.members(); len(got) > 0 {
				t.Errorf("after the answer, the members of the host's sets are %v", got)
			}
			n.awaitLeft(a, first.Path(), open+1) // that of the witness
			if n.served(first) {
				t.Error("the proxy still serves it")
			}
			ending := object("a")
			ending.Annotations = map[string]string{"example.com/ends": "soon"}
			n.tellAndAwait(a, looks, told(ending))
			n.leave(a, sandboxOf("one"), path(first.Path())) // the runtime tries again
			n.awaitLeft(a, first.Path(), open+1)
			n.arrive(a, second.Path(), "two")
			n.connect(second, 1)
			if got := n.members(); len(got) != 2 {
				t.Errorf("the members are %v, want the addresses of the next sandbox", got)
			}
		})
	}
}

// TestLateDeparture has the runtime end an older sandbox of a pod, or another of its networks,
// while the pod lives in a newer one, which stays.
func TestLateDeparture(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	first, second := n.pod("a"), n.pod("a")
	a, _ := n.run()
	n.proxy()
	n.feed <- told(object("a"))
	n.arrive(a, first.Path(), "one")
	n.arrive(a, second.Path(), "two")
	network := sandboxOf("two")
	network.IPs = []netip.Addr{netip.MustParseAddr("192.0.2.77")}
	unknown := podnetns.Pod{Namespace: "shop", Name: "pod-b", UID: "b", Containers: []string{"two"}}
	for name, held := range map[string]bool{
		"its namespace":                       n.leave(a, sandboxOf("one"), first.Path()),
		"its namespace, which counts":         n.leave(a, sandboxOf("two"), first.Path()),
		"its container":                       n.leave(a, sandboxOf("one"), ""),
		"no container":                        n.leave(a, sandboxOf(""), ""),
		"another network":                     n.leave(a, network, second.Path()),
		"a pod that the agent does not know":  n.leave(a, unknown, second.Path()),
		"a file that is no network namespace": n.leave(a, sandboxOf("two"), t.TempDir()),
	} {
		if held {
			t.Errorf("%s: the newer sandbox is given up", name)
		}
	}
	n.connect(second, 1)
	if len(n.members()) != 2 || len(n.records()) != 1 {
		t.Errorf("members %v, records %v, want those of the newer sandbox", n.members(), n.records())
	}
	if !n.leave(a, sandboxOf("two"), second.Path()) {
		t.Error("the newer sandbox is not known")
	}
}

// TestDepartureMeanwhile ends a sandbox while the plugin waits for the proxy, as after an ADD that
// was given up, and once more when the pod has another one.
func TestDepartureMeanwhile(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	first, second := n.pod("a"), n.pod("a")
	delete(n.paths, "a") // a search would find the second sandbox before the plugin hands the first one over
	open := sandboxtest.Descriptors(t, first.Path())
	a, _ := n.run() // no proxy serves the pod yet
	n.feed <- told(object("a"))
	enrol := func(path, container string) <-chan error {
		answer := make(chan error, 1)
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := a.Enrol(t.Context(), sandboxOf(container), file)
			answer <- err
		}()
		n.awaitPods(a, "that it tells the proxy", func(all []Pod) bool {
			return len(all) == 1 && all[0].Step == ambient.StepTell && all[0].Wanted.Enrolled
		})
		return answer
	}
	answer := enrol(first.Path(), "one")
	if !n.leave(a, sandboxOf("one"), first.Path()) {
		t.Fatal("the first sandbox is not known")
	}
	if err := <-answer; !errors.Is(err, ErrEnded) {
		t.Errorf("the plugin that waits gets %v, want ErrEnded", err)
	}
	n.awaitLeft(a, first.Path(), open)
	answer = enrol(second.Path(), "two")
	if n.leave(a, sandboxOf("one"), first.Path()) {
		t.Error("the second sandbox is given up")
	}
	n.proxy()
	if err := <-answer; err != nil {
		t.Fatal(err)
	}
	n.connect(second, 1)
}

// TestDeparturesInOrder hands a worker sandboxes and their ends before it takes any: what counts is
// the order in which the runtime has told.
func TestDeparturesInOrder(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	a, err := New(t.Context(), n.options)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorker(a, "a")
	ended := []*departure{}
	begin := func(pod *sandboxtest.Pod, container string) *event {
		e := &event{pod: sandboxOf(container), namespace: pod.Netns, Fate: roster.NewFate()}
		w.hand(handed{event: e})
		return e
	}
	end := func(pod *sandboxtest.Pod, container string) {
		d := &departure{pod: sandboxOf(container), netns: pod.ID(), done: make(chan struct{})}
		w.hand(handed{departure: d})
		ended = append(ended, d)
	}
	one, two := sandboxtest.NewPod(t), sandboxtest.NewPod(t)
	begin(one, "one")
	end(one, "one")
	latter := begin(two, "two")
	end(one, "one")
	if err := w.takeHanded(t.Context(), w.begin()); err != nil {
		t.Fatal(err)
	}
	for i, held := range []bool{true, false} {
		<-ended[i].done
		if ended[i].held != held {
			t.Errorf("end %d: held %t, want %t", i, ended[i].held, held)
		}
	}
	if w.event != latter || w.namespace.ID() != two.ID() || w.awaitsSandbox() {
		t.Errorf("the worker has %s, want %s", w.namespace, two)
	}
	if err := w.close(); err != nil {
		t.Error(err)
	}
}

// TestSandboxOfARecordEnds ends a sandbox that the agent knows from its journal alone: the feed has
// told nothing since its start.
func TestSandboxOfARecordEnds(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod, other := n.pod("a"), n.pod("b")
	first, end := n.run()
	n.proxy()
	n.feed <- told(object("a"))
	n.awaitSelection(first, "a")
	end()
	second, _ := n.run()
	second.awaitStart()
	if n.leave(second, sandboxOf("one"), other.Path()) || n.leave(second, sandboxOf("one"), "") {
		t.Error("another sandbox counts as the one of the record")
	}
	if len(n.members()) != 2 || len(n.records()) != 1 {
		t.Errorf("members %v, records %v, want both", n.members(), n.records())
	}
	if !n.leave(second, sandboxOf("one"), pod.Path()) || len(n.members()) > 0 {
		t.Errorf("members %v, want none of a sandbox that has ended", n.members())
	}
	n.await(func() bool { return len(n.records()) == 0 }, func() string { return "the record is still there: " + describe(second) })
}

// awaitStart waits until the agent works.
func (a *Agent) awaitStart() {
	started := func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.start != nil
	}
	for !started() {
		runtime.Gosched()
	}
}

// TestNextSandboxIsFound has a pod get another sandbox of which the plugin does not tell, such as
// while no plugin is installed: the feed tells of its address.
func TestNextSandboxIsFound(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := n.pod("a")
	a, _ := n.run()
	n.proxy()
	n.feed <- told(object("a"))
	n.arrive(a, pod.Path(), "one")
	n.leave(a, sandboxOf("one"), pod.Path())
	next := object("a")
	next.Addresses = []netip.Addr{netip.MustParseAddr("10.244.1.11")}
	n.pod("a")
	n.feed <- told(next)
	n.await(func() bool { return slices.Equal(n.members(), []string{"10.244.1.11 a"}) }, func() string { return describe(a) })
	n.awaitSelection(a, "a")
}

// TestLeaveIsBounded ends with the caller's context, and with the agent.
func TestLeaveIsBounded(t *testing.T) {
	t.Parallel()
	n, b := newBreakable(t)
	pod := n.pod("a")
	a, end := n.run()
	n.proxy()
	n.feed <- told(object("a"))
	n.arrive(a, pod.Path(), "one")
	b.updateV6.Store(true)
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	go func() {
		n.awaitPods(a, "the failure", func(all []Pod) bool { return len(all) == 1 && errors.Is(all[0].Err, errBroken) })
		cancel(enough)
	}()
	if held, err := a.Leave(ctx, sandboxOf("one"), nil); held || !errors.Is(err, enough) {
		t.Errorf("Leave = %t, %v, want %v", held, err, enough)
	}
	b.updateV6.Store(false)
	n.await(func() bool { return len(n.members()) == 0 }, func() string { return "the agent does not go on: " + describe(a) })
	end()
	if held, err := a.Leave(t.Context(), sandboxOf("one"), nil); held || !errors.Is(err, ErrStopped) {
		t.Errorf("Leave = %t, %v, want ErrStopped", held, err)
	}
}
