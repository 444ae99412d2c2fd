// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podnetns"
)

// ErrUnknownPod is wrapped by the error of [Agent.Enrol] if the feed has not told of the pod, or of
// its namespace, in time. [Agent.Withdraw] does not wait for the feed.
var ErrUnknownPod = errors.New("the agent has not heard of the pod: see whether it reaches the API server")

// ErrStopped is wrapped by the errors of [Agent.Enrol] and [Agent.Withdraw] if [Agent.Run] does not
// run any more. For Enrol it also means that Run has not begun.
var ErrStopped = errors.New("the agent does not run")

// ErrReplaced is wrapped by the error of [Agent.Enrol] if another namespace was handed over for the
// pod before it was enrolled in this one.
var ErrReplaced = errors.New("the pod has another network namespace since")

// event is a pod's namespace that the plugin has handed over.
type event struct {
	pod       podnetns.Pod
	namespace *interception.Netns
	settled   chan struct{} // closed when the pod is as wanted
	replaced  chan struct{} // closed when another namespace takes the place of this one
	ended     chan struct{} // closed when the runtime has ended the sandbox
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
	e := &event{
		pod: pod, namespace: namespace, settled: make(chan struct{}), replaced: make(chan struct{}), ended: make(chan struct{}),
	}
	if !a.hand(e) {
		return decision, errors.Join(fmt.Errorf("enrol pod %s: %w", pod, ErrStopped), namespace.Close())
	}
	return a.outcome(ctx, e)
}

// outcome waits for what becomes of an event.
func (a *Agent) outcome(ctx context.Context, e *event) (decision interception.Decision, err error) {
	pod := e.pod
	select {
	case <-e.settled:
		decision, err = a.awaitDecision(ctx, &pod)
		if err == nil && decision.Reason == ReasonVirtualMachine {
			err = machineError(pod)
		}
		return decision, err
	case <-e.replaced:
		return decision, fmt.Errorf("enrol pod %s: %w", pod, ErrReplaced)
	case <-e.ended:
		return decision, fmt.Errorf("enrol pod %s: %w", pod, ErrEnded)
	case <-a.stopped:
		return decision, fmt.Errorf("enrol pod %s: %w", pod, ErrStopped)
	case <-ctx.Done():
		return decision, a.unfinished(ctx, pod)
	}
}

// awaitDecision waits until the feed has told enough about a pod to decide. It sets the pod's UID.
func (a *Agent) awaitDecision(ctx context.Context, pod *podnetns.Pod) (interception.Decision, error) {
	for {
		a.mu.Lock()
		uid := a.uidOf(*pod)
		decision, known := a.decide(uid)
		if uid != "" {
			pod.UID = uid
		}
		changed := a.changed
		a.mu.Unlock()
		if known {
			return decision, nil
		}
		select {
		case <-changed:
		case <-a.stopped:
			return decision, fmt.Errorf("enrol pod %s: %w", pod, ErrStopped)
		case <-ctx.Done():
			return decision, fmt.Errorf("enrol pod %s: %w: %w", pod, ErrUnknownPod, context.Cause(ctx))
		}
	}
}

// uidOf returns the UID by which the feed tells of a pod. It is that of the pod, or of its mirror
// if it is static. A pod without UID is that of its name. It is "" if none is known, or none that
// may have the addresses. The caller holds mu.
func (a *Agent) uidOf(pod podnetns.Pod) string {
	if _, told := a.pods[pod.UID]; told {
		return pod.UID
	}
	for uid, known := range a.pods {
		if known.Namespace != pod.Namespace || known.Name != pod.Name {
			continue
		}
		if pod.UID != "" && RuntimeUID(known.Pod) == pod.UID {
			return uid
		}
		if pod.UID == "" && !known.Finished() &&
			!slices.ContainsFunc(known.Addresses, func(ip netip.Addr) bool { return !slices.Contains(pod.IPs, ip) }) {
			return uid
		}
	}
	return ""
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
func (a *Agent) unfinished(ctx context.Context, pod podnetns.Pod) error {
	a.mu.Lock()
	w := a.workers[pod.UID]
	a.mu.Unlock()
	cause := context.Cause(ctx)
	if w == nil {
		return fmt.Errorf("enrol pod %s: %w", pod, cause)
	}
	status := w.current()
	if status.Err == nil {
		return fmt.Errorf("enrol pod %s: step %q is not done: %w", pod, status.Step, cause)
	}
	return fmt.Errorf("enrol pod %s: step %q: %w: %w", pod, status.Step, status.Err, cause)
}
