// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
)

// TestYield has work on running pods put off while the plugin waits for a pod, for no longer than
// it waits, and not for ever.
func TestYield(t *testing.T) {
	t.Parallel()
	var r rush
	yield := func(came <-chan struct{}) <-chan struct{} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.yield(t.Context(), came)
		}()
		return done
	}
	<-yield(nil) // the plugin waits for no pod
	first, second := r.begin(), r.begin()
	<-yield(nil) // for as long as it may at most
	came := make(chan struct{}, 1)
	came <- struct{}{}
	<-yield(came)
	if len(came) > 0 {
		t.Error("work on a pod that the plugin waits for is put off")
	}
	first()
	if r.pods != 1 {
		t.Errorf("%d pods are waited for, want one", r.pods)
	}
	second()
	<-r.over
	if r.begin(); r.pods != 1 {
		t.Errorf("%d pods are waited for again, want one", r.pods)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	r.yield(ended, nil)
}

// handBeside has the plugin hand over pod a, which no search finds, and returns the answer to come.
func (n *node) handBeside(a *Agent, pod *dataplanetest.Pod) <-chan error {
	n.t.Helper()
	answer := make(chan error, 1)
	go func() {
		_, err := n.hand(n.t.Context(), a, "a", pod)
		answer <- err
	}()
	return answer
}

// TestNewPodIsPrepared has the plugin hand a pod over to a proxy that does not answer: the agent
// has recorded the pod, has entered it in the host's sets and has applied its rules, when the proxy
// does.
func TestNewPodIsPrepared(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := n.pod("a")
	delete(n.paths, "a")
	a, _ := n.run()
	told := told(object("a"))
	n.feed <- told
	silent := n.standIn(ambienttest.ProxyOptions{Faults: ambienttest.Faults{NoAck: true}})
	n.await(func() bool { return a.server.Status().Connections == 1 }, func() string { return "no proxy has connected" })
	answer := n.handBeside(a, pod)
	want := []string{"10.244.1.10 a", "fd00:10:244:1::a a"}
	n.await(func() bool {
		return slices.Equal(n.members(), want) && len(n.records()) == 1 && n.captured(pod)
	}, func() string { return describe(a) })
	select {
	case err := <-answer:
		t.Errorf("the plugin was answered before the proxy has acknowledged the pod: %v", err)
	default:
	}
	if err := silent.Close(); err != nil {
		t.Error(err)
	}
	n.proxy()
	if err := <-answer; err != nil {
		t.Error(err)
	}
	n.connect(pod, 1)
}

// TestNewPodWithoutProxy has the plugin hand a pod over while no proxy is connected: it gets no
// rules before one is there.
func TestNewPodWithoutProxy(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.options.TellTimeout = 100 * time.Millisecond
	pod := n.pod("a")
	delete(n.paths, "a")
	a, _ := n.run()
	n.feed <- told(object("a"))
	answer := n.handBeside(a, pod)
	n.awaitPods(a, "that the proxy has not acknowledged it", func(pods []Pod) bool {
		return len(pods) == 1 && pods[0].Step == ambient.StepTell && pods[0].Err != nil
	})
	if n.captured(pod) {
		t.Error("the pod has rules, and no proxy is connected")
	}
	n.proxy()
	if err := <-answer; err != nil {
		t.Error(err)
	}
	n.connect(pod, 1)
}

// TestNewPodIsOptedOut has the plugin hand over a pod that has a status from an earlier sandbox,
// and that leaves the mesh before a proxy has come: the status goes.
func TestNewPodIsOptedOut(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.options.TellTimeout = 100 * time.Millisecond
	pod := n.pod("a")
	delete(n.paths, "a")
	a, _ := n.run()
	n.feed <- told(with(ambient.StatusEnabled, object("a")))
	answer := make(chan error, 1)
	go func() {
		decision, err := n.hand(t.Context(), a, "a", pod)
		if err == nil && decision.Capture {
			err = errors.New("it is in the mesh")
		}
		answer <- err
	}()
	n.awaitPods(a, "that no proxy has acknowledged it", func(pods []Pod) bool {
		return len(pods) == 1 && pods[0].Step == ambient.StepTell && pods[0].Err != nil
	})
	n.feed <- told(with(ambient.StatusEnabled, optedOut("a")))
	if err := <-answer; err != nil {
		t.Error(err)
	}
	n.awaitStatus(a, "a", ambient.NoStatus)
}

// TestNewPodIsRefused has the kernel refuse the rules of a pod that the plugin hands over, while
// the proxy does not answer: the error names both.
func TestNewPodIsRefused(t *testing.T) {
	t.Parallel()
	n, b := newBreakable(t)
	n.options.TellTimeout = 100 * time.Millisecond
	pod := n.pod("a")
	delete(n.paths, "a")
	a, _ := n.run()
	n.feed <- told(object("a"))
	silent := n.standIn(ambienttest.ProxyOptions{Faults: ambienttest.Faults{NoAck: true}})
	n.await(func() bool { return a.server.Status().Connections == 1 }, func() string { return "no proxy has connected" })
	b.apply.Store(true)
	answer := n.handBeside(a, pod)
	n.awaitPods(a, "why it has no rules and that the proxy has not acknowledged it", func(pods []Pod) bool {
		return len(pods) == 1 && pods[0].Step == ambient.StepTell && errors.Is(pods[0].Err, errBroken) && errors.Is(pods[0].Err, context.DeadlineExceeded)
	})
	b.apply.Store(false)
	if err := silent.Close(); err != nil {
		t.Error(err)
	}
	n.proxy()
	if err := <-answer; err != nil {
		t.Error(err)
	}
	n.connect(pod, 1)
}

// TestNewPodWithWrongAnnotation has the plugin hand a pod over whose annotation does not parse: the
// proxy is not told of it.
func TestNewPodWithWrongAnnotation(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := n.pod("a")
	delete(n.paths, "a")
	a, _ := n.run()
	wrong := object("a")
	wrong.Annotations = map[string]string{"traffic.istio.io/excludeOutboundIPRanges": "x"}
	n.feed <- told(wrong)
	n.proxy()
	n.await(func() bool { return a.server.Status().Connections == 1 }, func() string { return "no proxy has connected" })
	ctx, cancel := context.WithCancel(t.Context())
	answer := make(chan error, 1)
	go func() {
		_, err := n.hand(ctx, a, "a", pod)
		answer <- err
	}()
	n.awaitPods(a, "that it cannot make the plan", func(pods []Pod) bool {
		return len(pods) == 1 && pods[0].Err != nil && pods[0].Seen.Open
	})
	cancel()
	if err := <-answer; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the plugin has given up", err)
	}
	if got := a.Pods()[0]; got.Step != "" || got.Seen.Proxy != ambient.ProxyUntold || len(n.records()) > 0 {
		t.Errorf("%+v, %d records, want no step and no record", got, len(n.records()))
	}
}

// editing is a dataplane that a test has do something after each look at the host.
type editing struct {
	hostDataplane
	host  *interception.Netns
	after func()
}

func (e editing) Observe(ctx context.Context, ns *interception.Netns, owner interception.Owner) (interception.State, error) {
	state, err := e.hostDataplane.Observe(ctx, ns, owner)
	if ns == e.host {
		e.after()
	}
	return state, err
}
