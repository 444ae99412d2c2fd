// SPDX-License-Identifier: Apache-2.0

package nodemode

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/meshcni/meshcni/ambient/agent"
)

// Withdraw takes pods out of the mesh, or all pods of the node if no UID is given. Each is treated
// as if no selector matched it: its addresses leave the sets, and its annotation goes. Its
// connections stay. With all pods also the rules, interfaces and settings of the host and of the
// proxy's namespace go, once captured connections have ended or Options.DrainTimeout is over, and
// the state file last. Pods that are new are not enrolled then.
//
// The pods stay out until [Agent.Readmit] is called, or the agent ends. Withdraw does not need the
// feed: a pod of which it has not told yet is known by its members. The annotation of such a pod
// stays.
//
// Withdraw waits until all is done, and calls progress for each pod that is out. The error is an
// [*agent.LeftError] if the context ends before, or it wraps [agent.ErrUnknownPod],
// [agent.ErrReadmitted] or [agent.ErrStopped].
func (a *Agent) Withdraw(ctx context.Context, progress func(agent.Pod), uids ...string) error {
	readmits, out, err := a.beginWithdrawal(uids)
	if err != nil {
		return fmt.Errorf("withdraw pods: %w", err)
	}
	reported := map[string]bool{}
	for over := false; ; {
		left, done, changed, err := a.lookAtWithdrawal(readmits, uids, out)
		if err != nil {
			return fmt.Errorf("withdraw pods: %w", err)
		}
		for _, uid := range slices.Sorted(maps.Keys(out)) {
			if stays := slices.ContainsFunc(left, func(p agent.Pod) bool { return p.UID == uid }); !stays && !reported[uid] {
				reported[uid] = true
				progress(out[uid])
			}
		}
		if done {
			return nil
		}
		if over {
			return a.unfinishedWithdrawal(left, context.Cause(ctx))
		}
		select {
		case <-changed:
		case <-a.stopped:
			return fmt.Errorf("withdraw pods: %w", agent.ErrStopped)
		case <-ctx.Done():
			over = true // one more look tells how far the pods are
		}
	}
}

// unfinishedWithdrawal says what is left at the end of a context.
func (a *Agent) unfinishedWithdrawal(left []agent.Pod, cause error) error {
	if len(left) > 0 {
		return &agent.LeftError{Pods: left, Cause: cause}
	}
	return fmt.Errorf("withdraw pods: the rules of the node are still there: %w", cmp.Or(a.hostError(), cause))
}

// beginWithdrawal makes the pods leave. It returns how many readmissions there were before, and the
// pods.
func (a *Agent) beginWithdrawal(uids []string) (readmits int, out map[string]agent.Pod, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-a.stopped:
		return 0, nil, agent.ErrStopped
	default:
	}
	out = map[string]agent.Pod{}
	for _, uid := range uids {
		pod, told := a.roster.Pods[uid]
		if !told && a.entries[uid] == nil && len(a.host.members.of(uid)) == 0 {
			return 0, nil, fmt.Errorf("pod %s: %w", uid, agent.ErrUnknownPod)
		}
		out[uid] = agent.Pod{UID: uid, Namespace: pod.Namespace, Name: pod.Name}
	}
	a.roster.Withdrawn.All = a.roster.Withdrawn.All || len(uids) == 0
	for _, uid := range uids {
		a.roster.Withdrawn.UIDs[uid] = true
	}
	a.hostDueLocked(0)
	a.wakeMembersLocked()
	a.wakeWithdrawnLocked(uids, out)
	a.roster.News()
	return a.roster.Withdrawn.Readmits, out, nil
}

// wakeWithdrawnLocked makes the withdrawn pods due, and notes those of this withdrawal: they may be
// out before the first look. The caller holds mu.
func (a *Agent) wakeWithdrawnLocked(uids []string, out map[string]agent.Pod) {
	for uid, e := range a.entries {
		if len(uids) == 0 || slices.Contains(uids, uid) {
			out[uid] = e.leaves()
		}
		if a.roster.Withdrawn.Has(uid) {
			a.dueLocked(e)
		}
	}
}

// wakeMembersLocked gives each member's pod an entry. The caller holds mu.
func (a *Agent) wakeMembersLocked() {
	for _, uid := range a.host.members.pods() {
		a.wakeLocked(uid)
	}
}

// lookAtWithdrawal returns the pods that are still in the mesh, whether all is done, and a channel
// that is closed when a pod is out. It notes the pods in out.
func (a *Agent) lookAtWithdrawal(
	readmits int, uids []string, out map[string]agent.Pod,
) (left []agent.Pod, done bool, changed <-chan struct{}, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.roster.Withdrawn.Readmits != readmits {
		return nil, false, nil, agent.ErrReadmitted
	}
	for uid, e := range a.entries {
		if len(uids) == 0 || slices.Contains(uids, uid) {
			left = append(left, e.state)
			out[uid] = e.leaves()
		}
	}
	slices.SortFunc(left, func(a, b agent.Pod) int { return cmp.Compare(a.UID, b.UID) })
	return left, len(left) == 0 && (len(uids) > 0 || a.bare), a.retired, nil
}

// leaves returns the pod as progress is told of it. The caller holds mu.
func (e *entry) leaves() agent.Pod {
	return agent.Pod{UID: e.uid, Namespace: e.state.Namespace, Name: e.state.Name, Wanted: e.state.Wanted}
}

// hostError returns why the host is not as it should be.
func (a *Agent) hostError() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.proxyState.err
}

// mayClear reports whether all pods are to be out of the mesh, by command.
func (a *Agent) mayClear() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.roster.Withdrawn.All
}

// clear removes everything from the host once no pod is in the mesh.
func (a *Agent) clear(ctx context.Context) error {
	if a.isBare() {
		return nil
	}
	if !a.host.members.areKnown() { // after a start: whose members there are is to be seen first
		if err := a.host.see(ctx); err != nil {
			return err
		}
		a.mu.Lock()
		a.keepMembersLocked()
		a.wakeMembersLocked()
		a.mu.Unlock()
	}
	a.mu.Lock()
	busy := len(a.entries) > 0
	a.mu.Unlock()
	if busy {
		return nil // the last one that is out has the host looked at
	}
	if drains, err := a.drains(); err != nil || drains {
		return err
	}
	if err := a.host.clear(ctx); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.bare = a.roster.Withdrawn.All
	a.retireLocked()
	return nil
}

func (a *Agent) isBare() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.isBareLocked()
}

func (a *Agent) isBareLocked() bool { return a.bare }

// Readmit ends every withdrawal that [Agent.Withdraw] has begun: pods that the selectors match are
// enrolled again.
func (a *Agent) Readmit() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.roster.Readmit()
	a.bare = false
	a.retireLocked() // those who wait for the withdrawal look again
	a.hostDueLocked(0)
	for uid := range a.roster.Pods {
		a.wakeLocked(uid)
	}
}
