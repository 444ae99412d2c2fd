// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/ambient/agent/event"
)

// keeper knows pods, and takes those out that do not stay.
type keeper struct {
	node      event.Node
	stays     bool
	err       error
	readmits  atomic.Int32
	deadlines chan time.Duration
}

func (k *keeper) Pods(_ context.Context, of event.Selection) (event.Node, error) {
	node := k.node
	node.Pods = nil
	for _, pod := range k.node.Pods {
		if of.Matches(pod) {
			node.Pods = append(node.Pods, pod)
		}
	}
	return node, k.err
}

func (k *keeper) Withdraw(ctx context.Context, of event.Selection, out func(event.PodState)) (left []event.PodState, err error) {
	node, err := k.Pods(ctx, of)
	deadline, _ := ctx.Deadline()
	k.deadlines <- time.Until(deadline)
	if !k.stays || err != nil {
		for _, pod := range node.Pods {
			out(pod)
		}
		return nil, err
	}
	out(node.Pods[0])
	<-ctx.Done()
	return node.Pods[1:], errors.New("a connection does not end")
}

func (k *keeper) Readmit(context.Context) error {
	k.readmits.Add(1)
	return k.err
}

func twoPods() event.Node {
	return event.Node{
		Complete: true,
		Proxy:    event.ProxyState{Connection: event.ProxyLost, Since: time.Unix(1700000000, 0).UTC(), Error: "it has closed it"},
		Pods: []event.PodState{
			{
				UID: "7f0b", Namespace: "shop", Name: "web-0", Addresses: []netip.Addr{netip.MustParseAddr("10.244.1.6")}, Eligible: true,
				Reason: "selected", Detail: "selector 2", Managed: true, Rules: "planned", Listeners: "told", InSets: true, Status: "pending",
				Annotation: "enabled", Step: "await-proxy", Error: "the proxy refuses", Refusal: "no", Since: time.Unix(1700000001, 0).UTC(),
			},
			{UID: "8a1c", Namespace: "shop", Name: "web-1", Reason: "not-selected"},
		},
	}
}

func (k *keeper) serve(t *testing.T) (socket string, outcomes <-chan event.Outcome) {
	t.Helper()
	k.deadlines = make(chan time.Duration, 10)
	return serveWith(t, event.Options{Enroller: &enroller{}, Keeper: k})
}

func TestPods(t *testing.T) {
	t.Parallel()
	k := &keeper{node: twoPods()}
	socket, outcomes := k.serve(t)
	for name, test := range map[string]struct {
		of   event.Selection
		want int
	}{
		"all": {event.Selection{}, 2}, "by UID": {event.Selection{UID: "8a1c"}, 1}, "by name": {event.Selection{Namespace: "shop", Name: "web-0"}, 1},
		"unknown": {event.Selection{Namespace: "bank", Name: "web-0"}, 0},
	} {
		got, err := event.Pods(t.Context(), socket, test.of)
		if err != nil || len(got.Pods) != test.want {
			t.Errorf("%s: %+v, %v, want %d pods", name, got, err, test.want)
		}
		if o := <-outcomes; o.Path != "/v1/pods" || o.Status != 200 || o.Err != nil {
			t.Errorf("%s: the outcome is %+v", name, o)
		}
		if diff := cmp.Diff(twoPods(), got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); test.want == 2 && diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// TestManyPods has more pods than a request may have bytes.
func TestManyPods(t *testing.T) {
	t.Parallel()
	k := &keeper{node: twoPods()}
	for i := range 1000 {
		k.node.Pods = append(k.node.Pods, event.PodState{UID: fmt.Sprint(i), Error: strings.Repeat("x", 200)})
	}
	socket, _ := k.serve(t)
	if got, err := event.Pods(t.Context(), socket, event.Selection{}); err != nil || len(got.Pods) != 1002 {
		t.Errorf("%d pods, %v", len(got.Pods), err)
	}
	out := 0
	if left, err := event.Withdraw(t.Context(), socket, event.Selection{}, func(event.PodState) { out++ }); err != nil || len(left) > 0 || out != 1002 {
		t.Errorf("%d pods are out, %d left, %v", out, len(left), err)
	}
}

func TestWithdraw(t *testing.T) {
	t.Parallel()
	k := &keeper{node: twoPods()}
	socket, _ := k.serve(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
	defer cancel()
	var out []string
	left, err := event.Withdraw(ctx, socket, event.Selection{UID: "8a1c"}, func(pod event.PodState) { out = append(out, pod.String()) })
	if err != nil || len(left) > 0 || len(out) != 1 || out[0] != "shop/web-1" {
		t.Errorf("out %q, left %v, %v", out, left, err)
	}
	if got := <-k.deadlines; got < 60*time.Second || got > 90*time.Second {
		t.Errorf("the agent has %s, want nine tenths of the 100 seconds", got)
	}
	if err := event.Readmit(t.Context(), socket); err != nil || k.readmits.Load() != 1 {
		t.Errorf("Readmit: %v, %d times", err, k.readmits.Load())
	}
}

// TestWithdrawLeavesPods has a pod that stays: the one that is out is told at once.
func TestWithdrawLeavesPods(t *testing.T) {
	t.Parallel()
	k := &keeper{node: twoPods(), stays: true}
	socket, outcomes := k.serve(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var early bool
	left, err := event.Withdraw(ctx, socket, event.Selection{}, func(event.PodState) { early = len(outcomes) == 0 })
	own, is := errors.AsType[*event.Error](err)
	if !is || own.Code != event.CodeUnfinished || !strings.Contains(own.Message, "does not end") || len(left) != 1 || left[0].UID != "8a1c" || !early {
		t.Errorf("left %v, %v, the first pod early: %t", left, err, early)
	}
}

func TestKeeperFails(t *testing.T) {
	t.Parallel()
	k := &keeper{err: &event.Error{Code: event.CodeStopped, Message: "it ends"}}
	socket, _ := k.serve(t)
	other, _ := serve(t, &enroller{}) // without a keeper
	for name, ask := range map[string]func(string) error{
		"pods":     func(at string) error { _, err := event.Pods(t.Context(), at, event.Selection{}); return err },
		"withdraw": func(at string) error { _, err := event.Withdraw(t.Context(), at, event.Selection{}, nil); return err },
		"readmit":  func(at string) error { return event.Readmit(t.Context(), at) },
	} {
		if own, is := errors.AsType[*event.Error](ask(socket)); !is || own.Code != event.CodeStopped {
			t.Errorf("%s: %v", name, own)
		}
		if own, is := errors.AsType[*event.Error](ask(other)); !is || own.Code != event.CodeProtocol || !strings.Contains(own.Message, "another version") {
			t.Errorf("%s, of an older agent: %v", name, own)
		}
	}
}

func TestBadWithdrawals(t *testing.T) {
	t.Parallel()
	k := &keeper{node: twoPods()}
	socket, _ := k.serve(t)
	for body, want := range map[string]string{
		"": "unexpected end", "{}": "neither all pods", `{"namespace":"shop"}`: "neither all pods", `{"all":true,"uid":"a"}`: "names all pods and one",
		`{"all":true,"timeout":"soon"}`: "soon", `{"all":true,"timeout":"0s"}`: "no time to wait",
	} {
		status, got := exchange(t, socket, post("/v1/withdraw", body))
		if status != 400 || !strings.Contains(got, want) {
			t.Errorf("%q: %d %q, want 400 with %q", body, status, got, want)
		}
	}
	if len(k.deadlines) > 0 {
		t.Error("a pod was withdrawn")
	}
}
