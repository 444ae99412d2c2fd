// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
)

// progress collects the names of the pods that are out.
func progress(to *[]string) func(Pod) {
	return func(pod Pod) { *to = append(*to, pod.Namespace+"/"+pod.Name+" "+pod.UID+string(pod.Step)) }
}

// hostRules reports whether the host has rules.
func (n *node) hostRules() bool {
	n.t.Helper()
	state, err := n.dataplane.Observe(n.t.Context(), n.options.Host, owner)
	if err != nil {
		n.t.Fatal(err)
	}
	return differs(nil, state)
}

// TestWithdrawAll takes the pods of the node out of the mesh, as an uninstallation does, and lets
// them in again.
func TestWithdrawAll(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod, _, later := n.pod("a"), n.pod("b"), n.pod("c")
	a, _ := n.run()
	n.proxy()
	n.feed <- told(object("a"), object("b"), optedOut("d"))
	n.awaitPods(a, "that both pods are as wanted", bothServed)
	var out []string
	if err := a.Withdraw(t.Context(), progress(&out)); err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	if diff := cmp.Diff([]string{"shop/pod-a a", "shop/pod-b b"}, out); diff != "" {
		t.Errorf("pods that are out (-want +got):\n%s", diff)
	}
	n.connect(pod, 0)
	if n.captured(pod) || n.served(pod) || n.hostRules() || len(n.records()) > 0 {
		t.Errorf("captured %t, served %t, rules on the host %t, records %v, want nothing",
			n.captured(pod), n.served(pod), n.hostRules(), n.records())
	}
	n.feed <- told(object("a"), object("c"))
	if decision, err := n.hand(t.Context(), a, "c", later); err != nil || decision.Capture || decision.Reason != ReasonWithdrawn {
		t.Errorf("the plugin gets %+v, %v for a new pod", decision, err)
	}
	a.sets.keep(ended(), func([]string, []netip.Addr) []netip.Addr { return nil }, a.takeOverHost) // a round
	if n.hostRules() || len(a.Pods()) > 0 {
		t.Errorf("after a round the host has rules: %t, and the agent deals with %s", n.hostRules(), describe(a))
	}
	a.Readmit()
	n.awaitPods(a, "that the pods are as wanted again", func(pods []Pod) bool { return served(pods) == 3 })
	n.connect(pod, 1)
	if !n.hostRules() || !slices.Contains(n.members(), "10.244.1.10 a") {
		t.Errorf("the host has the members %v", n.members())
	}
}

// TestWithdrawOne takes one pod out, with a connection that ends later, and keeps the other one.
func TestWithdrawOne(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod, other := n.pod("a"), n.pod("b")
	a, _ := n.run()
	n.proxy()
	n.feed <- told(object("a"), object("b"))
	n.awaitPods(a, "that both pods are as wanted", bothServed)
	if err := a.Withdraw(t.Context(), func(Pod) {}, "unknown"); !errors.Is(err, ErrUnknownPod) {
		t.Errorf("an unknown pod: %v", err)
	}
	relayed := n.open(pod)
	ctx, cancel := context.WithCancelCause(t.Context())
	result := make(chan error, 1)
	go func() { result <- a.Withdraw(ctx, func(pod Pod) { t.Errorf("%+v is out", pod) }, "a") }()
	n.awaitPods(a, "that it waits for the connection's end", func(pods []Pod) bool {
		return slices.ContainsFunc(pods, func(pod Pod) bool { return pod.UID == "a" && pod.Step == ambient.StepAwaitDrained })
	})
	tooLate := errors.New("the time is over")
	cancel(tooLate)
	left, is := errors.AsType[*LeftError](<-result)
	if !is || !errors.Is(left, tooLate) || len(left.Pods) != 1 || !strings.Contains(left.Error(), `shop/pod-a (a) at step "await-drained"`) {
		t.Fatalf("the error is %v", left)
	}
	n.exchange(relayed)
	if err := relayed.Close(); err != nil {
		t.Fatal(err)
	}
	var out []string
	if err := a.Withdraw(t.Context(), progress(&out), "a"); err != nil || !slices.Equal(out, []string{"shop/pod-a a"}) {
		t.Errorf("%v, %q", err, out)
	}
	n.connectOut(pod, 0)
	n.connectOut(other, 1)
	if !n.hostRules() || n.captured(pod) {
		t.Errorf("the host has rules: %t, the pod has some: %t", n.hostRules(), n.captured(pod))
	}
	changed := object("a")
	changed.Labels["more"] = "labels"
	n.feed <- told(changed)
	if decision := decisionOf(a, "a"); decision.Reason != ReasonWithdrawn || n.captured(pod) {
		t.Errorf("after a change of the pod the decision is %+v", decision)
	}
	out = nil
	if err := a.Withdraw(t.Context(), progress(&out), "a"); err != nil || len(out) != 1 {
		t.Errorf("a pod that is out: %v, %q", err, out)
	}
}

func decisionOf(a *Agent, uid string) interception.Decision {
	for _, pod := range a.Status().Pods {
		if pod.UID == uid {
			return pod.Decision
		}
	}
	return interception.Decision{}
}

// TestReadmitted admits the pods again while one of them is drained.
func TestReadmitted(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := n.pod("a")
	a, _ := n.run()
	n.proxy()
	n.feed <- told(object("a"))
	n.awaitStatus(a, "a", ambient.StatusEnabled)
	relayed := n.open(pod)
	result := make(chan error, 1)
	go func() { result <- a.Withdraw(t.Context(), func(Pod) {}) }()
	n.awaitPods(a, "that it waits for the connection's end", func(pods []Pod) bool {
		return len(pods) == 1 && pods[0].Step == ambient.StepAwaitDrained
	})
	a.Readmit()
	if err := <-result; !errors.Is(err, ErrReadmitted) {
		t.Errorf("Withdraw = %v", err)
	}
	n.awaitPods(a, "that the pod is as wanted", func(pods []Pod) bool { return served(pods) == 1 })
	n.connectOut(pod, 1)
	n.exchange(relayed)
}

// TestWithdrawWithoutFeed ends an agent, and has the next one withdraw its pods while the API
// server is away.
func TestWithdrawWithoutFeed(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := n.pod("a")
	a, end := n.run()
	n.feed <- told(object("a"))
	n.proxy()
	n.awaitStatus(a, "a", ambient.StatusEnabled)
	end()
	if err := a.Withdraw(t.Context(), func(Pod) {}); !errors.Is(err, ErrStopped) {
		t.Errorf("without Run: %v", err)
	}
	a, _ = n.run()
	if pods := a.Status().Pods; len(pods) != 1 || pods[0].Name != "pod-a" {
		t.Errorf("the agent knows %+v, want the pod of the record", pods)
	}
	var out []string
	if err := a.Withdraw(t.Context(), progress(&out)); err != nil || !slices.Equal(out, []string{"shop/pod-a a"}) {
		t.Errorf("%v, %q", err, out)
	}
	if n.captured(pod) || n.hostRules() || len(n.records()) > 0 {
		t.Errorf("captured %t, rules on the host %t, records %v, want nothing", n.captured(pod), n.hostRules(), n.records())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if decision, err := n.hand(ctx, a, "b", n.pod("b")); err != nil || decision.Reason != ReasonWithdrawn {
		t.Errorf("the plugin gets %+v, %v for a new pod", decision, err)
	}
}

func TestStatusOfTheNode(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.pod("a")
	a, _ := n.run()
	if status := a.Status(); status.Complete || len(status.Pods) > 0 || status.Proxy.Connections != 0 {
		t.Errorf("at first: %+v", status)
	}
	annotated, waits := object("a"), object("b")
	annotated.Annotations = map[string]string{ambient.Istio().Status: "pending"}
	waits.Addresses = nil
	n.feed <- told(waits, annotated, optedOut("c"))
	n.proxy()
	n.awaitStatus(a, "a", ambient.StatusEnabled)
	n.awaitPods(a, "that pod a is as wanted", func(pods []Pod) bool { return served(pods) == 1 })
	status := a.Status()
	if len(status.Pods) != 3 || !status.Complete || status.Withdrawn || status.Proxy.Connections != 1 {
		t.Fatalf("the status is %+v", status)
	}
	first, third := status.Pods[0], status.Pods[2]
	if first.UID != "a" || !first.Decision.Capture || first.Annotation != "pending" || first.Seen.Status != ambient.StatusEnabled ||
		!slices.Equal(first.Addresses, addresses) {
		t.Errorf("pod a: %+v", first)
	}
	if third.UID != "c" || third.Decision.Reason != ambient.ReasonNotSelected || !third.Since.IsZero() {
		t.Errorf("pod c: %+v", third)
	}
}
