// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/ambient/agent/internal/roster"
)

// ReasonWithdrawn is the reason of a decision about a pod that a selector matches, and that
// [Agent.Withdraw] has taken out of the mesh.
const ReasonWithdrawn = roster.ReasonWithdrawn

// ErrReadmitted is wrapped by the error of [Agent.Withdraw] if [Agent.Readmit] was called before
// the pods were out of the mesh.
var ErrReadmitted = errors.New("the pods were admitted to the mesh again meanwhile")

// LeftError is the error of [Agent.Withdraw] if its context ends first.
type LeftError struct {
	// Pods are those that are still in the mesh. The agent goes on with them.
	Pods []Pod
	// Cause is why the context ended.
	Cause error
}

// Error names each pod with what it waits for.
func (e *LeftError) Error() string {
	left := make([]string, 0, len(e.Pods))
	for _, pod := range e.Pods {
		text := fmt.Sprintf("%s/%s (%s) at step %q", pod.Namespace, pod.Name, pod.UID, pod.Step)
		if pod.Err != nil {
			text += ": " + pod.Err.Error()
		}
		left = append(left, text)
	}
	return fmt.Sprintf("withdraw pods: %d are still in the mesh, and the agent goes on with them: %s: %v",
		len(left), strings.Join(left, "; "), e.Cause)
}

// Unwrap returns the cause.
func (e *LeftError) Unwrap() error { return e.Cause }

// Withdraw takes pods out of the mesh, or all pods of the node if no UID is given. Each is treated
// as if no selector matched it: its connections are drained, the proxy forgets it, and its rules
// go. With all pods also the host's rules go, and pods that are new are not enrolled.
//
// The pods stay out until [Agent.Readmit] is called, or the agent ends. Withdraw does not need the
// feed: a pod of which it has not told yet is known by its record, and found by its addresses in
// the host's sets. The annotation of such a pod stays.
//
// Withdraw waits until all is done, and calls progress for each pod that is out. The error is a
// [*LeftError] if the context ends before, or it wraps [ErrUnknownPod], [ErrReadmitted],
// [ErrStopped], or what the kernel says of the host's rules.
func (a *Agent) Withdraw(ctx context.Context, progress func(Pod), uids ...string) error {
	w := withdrawal{agent: a, uids: uids, pods: map[string]Pod{}, reported: map[string]bool{}}
	if err := w.begin(); err != nil {
		return fmt.Errorf("withdraw pods: %w", err)
	}
	for over := false; ; {
		left, out, changed, err := w.look()
		for _, pod := range out {
			progress(pod)
		}
		if err == nil && len(left) == 0 {
			err = w.clearHost(ctx)
		}
		if err != nil {
			return fmt.Errorf("withdraw pods: %w", err)
		}
		switch {
		case len(left) == 0:
			return nil
		case over:
			return &LeftError{left, context.Cause(ctx)}
		}
		select {
		case <-changed:
		case <-a.stopped:
			return fmt.Errorf("withdraw pods: %w", ErrStopped)
		case <-ctx.Done():
			over = true // one more look tells how far the pods are
		}
	}
}

// withdrawal is one call of [Agent.Withdraw].
type withdrawal struct {
	agent    *Agent
	uids     []string // all pods if empty
	readmits int      // how many there were before
	pods     map[string]Pod
	reported map[string]bool
}

// begin makes the workers of the pods withdraw them.
func (w *withdrawal) begin() error {
	a := w.agent
	select {
	case <-a.stopped:
		return ErrStopped
	default: // workers that Run has not started yet will see what is wanted
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, uid := range w.uids {
		pod, told := a.roster.Pods[uid]
		if !told && a.workers[uid] == nil {
			return fmt.Errorf("pod %s: %w", uid, ErrUnknownPod)
		}
		w.pods[uid] = Pod{UID: uid, Namespace: pod.Namespace, Name: pod.Name}
	}
	w.readmits = a.roster.Withdrawn.Readmits
	a.roster.Withdrawn.All = a.roster.Withdrawn.All || len(w.uids) == 0
	for _, uid := range w.uids {
		a.roster.Withdrawn.UIDs[uid] = true
	}
	for uid, worker := range a.workers {
		if a.roster.Withdrawn.Has(uid) {
			worker.nudge()
		}
		if len(w.uids) == 0 {
			w.pods[uid] = worker.current() // it may be out before the first look
		}
	}
	a.roster.News()
	return nil
}

// look returns the pods that are still in the mesh, those that are out since the last look, and a
// channel that is closed when a pod is out.
func (w *withdrawal) look() (left, out []Pod, changed <-chan struct{}, err error) {
	a := w.agent
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.roster.Withdrawn.Readmits != w.readmits {
		return nil, nil, nil, ErrReadmitted
	}
	for uid, worker := range a.workers {
		if len(w.uids) == 0 || slices.Contains(w.uids, uid) {
			w.pods[uid] = worker.current()
			left = append(left, w.pods[uid])
		}
	}
	for uid, pod := range w.pods {
		if a.workers[uid] == nil && !w.reported[uid] {
			pod.Step, pod.Err, w.reported[uid] = "", nil, true
			out = append(out, pod)
		}
	}
	slices.SortFunc(left, comparePods)
	slices.SortFunc(out, comparePods)
	return left, out, a.retired, nil
}

// comparePods orders by name and UID.
func comparePods(a, b Pod) int {
	return strings.Compare(a.Namespace+"/"+a.Name+"/"+a.UID, b.Namespace+"/"+b.Name+"/"+b.UID)
}

// clearHost removes the host's rules once no pod needs them any more.
func (w *withdrawal) clearHost(ctx context.Context) error {
	a := w.agent
	if len(w.uids) > 0 || a.options.Host == nil {
		return nil
	}
	if err := a.sets.suspend(ctx); err != nil {
		return fmt.Errorf("remove the host's rules: %w", err)
	}
	a.mu.Lock()
	readmitted := a.roster.Withdrawn.Readmits != w.readmits
	a.mu.Unlock()
	if readmitted { // while the rules were removed
		a.resume()
		return ErrReadmitted
	}
	return nil
}

// Readmit ends every withdrawal that [Agent.Withdraw] has begun: pods that the selectors match are
// enrolled again.
func (a *Agent) Readmit() {
	a.mu.Lock()
	a.roster.Readmit()
	close(a.retired) // those who wait for the withdrawal look again
	a.retired = make(chan struct{})
	a.mu.Unlock()
	a.resume()
}

// resume makes the agent look at the host and at all pods again.
func (a *Agent) resume() {
	a.sets.resume()
	a.mu.Lock()
	defer a.mu.Unlock()
	for uid := range a.roster.Pods {
		a.wake(uid)
	}
}
