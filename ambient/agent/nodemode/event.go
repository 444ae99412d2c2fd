// SPDX-License-Identifier: Apache-2.0

package nodemode

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/ambient/agent/internal/roster"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podnetns"
)

// event is a pod's sandbox that the plugin has told of.
type event struct {
	roster.Fate

	pod podnetns.Pod
	// former are the addresses that the feed told of the pod when the sandbox began. Until the feed
	// tells of others, they belong to an earlier sandbox.
	former []netip.Addr
	begun  time.Time // when it became the pod's
}

// departure is the end of a sandbox.
type departure struct {
	pod  podnetns.Pod
	held bool          // set before done is closed
	done chan struct{} // closed when the sandbox was given up, or is another one
}

// handed is what the plugin has told: either is set.
type handed struct {
	event     *event
	departure *departure
}

// Enrol enrols a new pod, if that is wanted, by the addresses that the plugin before has given it:
// no program runs there yet. It waits until the feed has told of the pod, the proxy serves and the
// pod is captured, and returns the decision about the pod. It does not wait for [ErrMark] to end. A
// static pod may have the UID that the runtime knows it by. A pod without a UID is found by its
// name, unless the feed tells of other addresses. The first of Containers is the id of its sandbox,
// by which [Agent.Leave] knows it; there may be none.
//
// Enrol closes the file, which is the pod's namespace and may be nil: this form of capture does not
// need it. The error wraps [ErrAddress], [ErrFamily], [agent.ErrUnknownPod], [agent.ErrReplaced],
// [agent.ErrEnded] or [agent.ErrStopped], or the failure of the pod's last step, together with the
// cause of a context that has ended. The agent goes on with the pod after such an end.
func (a *Agent) Enrol(ctx context.Context, pod podnetns.Pod, file *os.File) (interception.Decision, error) {
	if file != nil {
		_ = file.Close() // nothing was written
	}
	decision, err := a.awaitDecision(ctx, &pod)
	if err != nil || !decision.Capture {
		return decision, err
	}
	if len(pod.IPs) == 0 {
		return decision, fmt.Errorf("enrol pod %s: %w: the plugin tells of none", pod, ErrAddress)
	}
	e := &event{pod: pod, Fate: roster.NewFate()}
	if !a.hand(pod.UID, handed{event: e}, true) {
		return decision, fmt.Errorf("enrol pod %s: %w", pod, agent.ErrStopped)
	}
	if err := e.Await(ctx, pod, a.stopped, a.unfinished); err != nil {
		return decision, err
	}
	return a.awaitDecision(ctx, &pod)
}

// awaitDecision waits until the feed has told enough about a pod to decide. It sets the pod's UID.
func (a *Agent) awaitDecision(ctx context.Context, pod *podnetns.Pod) (interception.Decision, error) {
	return a.roster.AwaitDecision(ctx, &a.mu, a.stopped, pod, a.decideLocked)
}

// hand gives a pod's entry what the plugin has told, and makes an entry if asked. It reports
// whether the agent runs, and has an entry.
func (a *Agent) hand(uid string, h handed, create bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.entries[uid]
	if !a.running || e == nil && !create {
		return false
	}
	if e == nil {
		e = newEntry(uid)
		a.entries[uid] = e
	}
	e.handed = append(e.handed, h)
	a.urgent = append(a.urgent, e)
	a.dueLocked(e)
	return true
}

// unfinished says how far a pod is.
func (a *Agent) unfinished(pod podnetns.Pod, cause error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var state agent.Pod
	if e := a.entries[pod.UID]; e != nil {
		state = e.state
	}
	return roster.Unfinished(pod, state.Step, state.Err, cause)
}

// Leave gives a sandbox up that the container runtime ends: its addresses leave the host's sets. It
// reports whether the agent held this very sandbox. That is the one that Containers names or, after
// a start of the agent, the one that has one of the addresses. A request about an earlier sandbox
// of the pod changes nothing.
//
// Leave returns as soon as the addresses are out of the sets. A pod that the feed goes on to tell
// of is enrolled again in its next sandbox: when the plugin tells of that, or the feed of an
// address that the former one did not have, or after Options.Round.
//
// The file is ignored, and the caller closes it. The error wraps [agent.ErrStopped], or the cause
// of a context that has ended; the agent goes on after such an end.
func (a *Agent) Leave(ctx context.Context, pod podnetns.Pod, _ *os.File) (held bool, err error) {
	a.mu.Lock()
	if uid := a.roster.UID(pod); uid != "" {
		pod.UID = uid
	}
	running := a.running
	a.host.loseNoMore(pod.UID)
	a.mu.Unlock()
	if !running {
		return false, fmt.Errorf("give up the sandbox of pod %s: %w", pod, agent.ErrStopped)
	}
	d := &departure{pod: pod, done: make(chan struct{})}
	if !a.hand(pod.UID, handed{departure: d}, len(a.host.members.of(pod.UID)) > 0) {
		return false, nil
	}
	select {
	case <-d.done:
		return d.held, nil
	case <-a.stopped:
		return false, fmt.Errorf("give up the sandbox of pod %s: %w", pod, agent.ErrStopped)
	case <-ctx.Done():
		return false, fmt.Errorf("give up the sandbox of pod %s: %w", pod, context.Cause(ctx))
	}
}

// takeHanded takes over what the plugin has told, in that order.
func (a *Agent) takeHanded(ctx context.Context, e *entry) error {
	for {
		a.mu.Lock()
		if len(e.handed) == 0 {
			a.mu.Unlock()
			return nil
		}
		h := e.handed[0]
		a.mu.Unlock()
		if h.event != nil {
			e.begin(h.event)
		} else if err := a.takeDeparture(ctx, e, h.departure); err != nil {
			return err
		}
		a.mu.Lock()
		e.handed = e.handed[1:]
		a.mu.Unlock()
	}
}

// begin makes an event's sandbox the pod's.
func (e *entry) begin(next *event) {
	if e.sandbox == nil || e.sandbox.container() != next.container() {
		for _, former := range e.waiting {
			close(former.Replaced)
		}
		e.waiting = nil
	}
	clear(e.doubts)
	next.former, next.begun = e.pod.Addresses, time.Now()
	e.sandbox, e.ended = next, nil
	e.waiting = append(e.waiting, next)
}

// container returns the id of the sandbox; empty if the plugin has not told it.
func (e *event) container() string {
	if len(e.pod.Containers) == 0 {
		return ""
	}
	return e.pod.Containers[0]
}

// takeDeparture gives the pod's sandbox up if it is the one that ends.
func (a *Agent) takeDeparture(ctx context.Context, e *entry, d *departure) error {
	own := e.addresses()
	if len(own) == 0 {
		own = a.host.members.of(e.uid)
	}
	shares := slices.ContainsFunc(d.pod.IPs, func(address netip.Addr) bool { return slices.Contains(own, address) })
	is := shares
	if e.sandbox != nil && e.sandbox.container() != "" {
		is = slices.Contains(d.pod.Containers, e.sandbox.container()) && (len(d.pod.IPs) == 0 || shares)
	}
	if is {
		if !a.host.members.areKnown() {
			return errHost
		}
		if err := a.leave(ctx, e); err != nil {
			return err
		}
		for _, w := range e.waiting {
			close(w.Ended)
		}
		e.sandbox, e.waiting, e.ended, d.held = nil, nil, &ended{own, time.Now()}, true
	}
	close(d.done)
	return nil
}
