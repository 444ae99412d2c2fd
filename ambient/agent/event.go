// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/meshcni/meshcni/ambient/agent/internal/roster"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podnetns"
)

// ErrUnknownPod is wrapped by the error of [Agent.Enrol] if the feed has not told of the pod, or of
// its namespace, in time. [Agent.Withdraw] does not wait for the feed.
var ErrUnknownPod = roster.ErrUnknownPod

// ErrStopped is wrapped by the errors of [Agent.Enrol] and [Agent.Withdraw] if [Agent.Run] does not
// run any more. For Enrol it also means that Run has not begun.
var ErrStopped = roster.ErrStopped

// ErrReplaced is wrapped by the error of [Agent.Enrol] if another namespace was handed over for the
// pod before it was enrolled in this one.
var ErrReplaced = roster.ErrReplaced

// event is a pod's namespace that the plugin has handed over.
type event struct {
	roster.Fate

	pod       podnetns.Pod
	namespace *interception.Netns
	// former are the addresses that the feed told of the pod when the event was taken.
	former []netip.Addr
}

// handed is what the plugin tells a worker: an event or a departure.
type handed struct {
	event     *event
	departure *departure
}

// Enrol enrols a new pod, if that is wanted, in the namespace that the CNI plugin hands over: no
// program runs there yet. It waits until the feed has told of the pod, the proxy serves it and it
// is captured, and returns the decision about the pod. The pod needs the addresses that the plugin
// before has given it. A static pod may have the UID that the runtime knows it by. A pod without
// UID is that of its name, unless it has other addresses: then the feed has not told of its
// successor yet. The first of Containers is the id of its sandbox, by which [Agent.Leave] knows it;
// there may be none.
//
// Enrol takes ownership of the file. The error wraps [ErrUnknownPod], [ErrReplaced], [ErrEnded],
// [ErrVirtualMachine], a [*podnetns.RefusalError], or the failure of the pod's last step, together
// with the cause of a context that has ended. The agent goes on with the pod after such an end.
// Without [Agent.Run] the error wraps [ErrStopped].
func (a *Agent) Enrol(ctx context.Context, pod podnetns.Pod, file *os.File) (interception.Decision, error) {
	decision, err := a.awaitDecision(ctx, &pod)
	// The decision about a virtual machine may be about an earlier sandbox.
	if err != nil || !decision.Capture && decision.Reason != ReasonVirtualMachine {
		_ = file.Close() // it may be nil or closed
		return decision, err
	}
	defer a.rush.begin()()
	namespace, err := a.options.Finder.Verify(pod, file)
	if err != nil {
		return decision, err
	}
	is, err := a.isMachine(pod.UID, namespace)
	if err == nil && is {
		err = machineError(pod)
	}
	if err != nil {
		return decision, errors.Join(err, namespace.Close())
	}
	e := &event{pod: pod, namespace: namespace, Fate: roster.NewFate()}
	if !a.hand(e) {
		return decision, errors.Join(fmt.Errorf("enrol pod %s: %w", pod, ErrStopped), namespace.Close())
	}
	return a.outcome(ctx, decision, e)
}

// outcome waits for what becomes of an event.
func (a *Agent) outcome(ctx context.Context, decision interception.Decision, e *event) (interception.Decision, error) {
	pod := e.pod
	if err := e.Await(ctx, pod, a.stopped, a.unfinished); err != nil {
		return decision, err
	}
	decision, err := a.awaitDecision(ctx, &pod)
	if err == nil && decision.Reason == ReasonVirtualMachine {
		err = machineError(pod)
	}
	return decision, err
}

// awaitDecision waits until the feed has told enough about a pod to decide. It sets the pod's UID.
func (a *Agent) awaitDecision(ctx context.Context, pod *podnetns.Pod) (interception.Decision, error) {
	return a.roster.AwaitDecision(ctx, &a.mu, a.stopped, pod, a.decide)
}

// hand gives an event to the worker of the pod. It reports whether the agent runs.
func (a *Agent) hand(e *event) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.start == nil {
		return false
	}
	w := a.workers[e.pod.UID]
	isNew := w == nil
	if isNew {
		w = newWorker(a, e.pod.UID)
		a.workers[e.pod.UID] = w
	}
	w.hand(handed{event: e})
	if isNew {
		a.start(w)
	}
	return true
}

// unfinished says how far a pod is.
func (a *Agent) unfinished(pod podnetns.Pod, cause error) error {
	a.mu.Lock()
	w := a.workers[pod.UID]
	a.mu.Unlock()
	var status Pod
	if w != nil {
		status = w.current()
	}
	return roster.Unfinished(pod, status.Step, status.Err, cause)
}
