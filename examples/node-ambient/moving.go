// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podnetns"
)

// moving is the agent of the new form on a node whose pods move. Events and requests about pods
// that the former agent still has go to that agent, too.
type moving struct {
	meshAgent // the new form's

	move *move
}

// Status implements meshAgent. A pod that waits for the new form is captured as the former agent
// says. Of pods that the feed has not told of, only the former agent may know, and it knows why a
// pod cannot leave.
func (m moving) Status(uids ...string) agent.Status {
	if m.move.isOver() {
		return m.meshAgent.Status(uids...)
	}
	former := map[string]agent.PodStatus{} // is asked for first, so that a pod that moves meanwhile is in one of both
	for _, pod := range m.move.from.operators.Status(uids...).Pods {
		if m.move.has(pod.UID) {
			former[pod.UID] = pod
		}
	}
	status := m.meshAgent.Status(uids...)
	for i := range status.Pods {
		pod := &status.Pods[i]
		if other, has := former[pod.UID]; has {
			pod.Pod = m.join(pod.Pod, other.Pod)
			delete(former, pod.UID)
		}
	}
	status.Pods = slices.AppendSeq(status.Pods, maps.Values(former))
	slices.SortFunc(status.Pods, func(a, b agent.PodStatus) int {
		return strings.Compare(a.Namespace+"/"+a.Name+"/"+a.UID, b.Namespace+"/"+b.Name+"/"+b.UID)
	})
	return status
}

// join returns how far the agents are with a pod that both may deal with.
func (m moving) join(pod, former agent.Pod) agent.Pod {
	if pod.Since.IsZero() { // the former agent alone deals with it
		return former
	}
	if holds(former.Seen) && !holds(pod.Seen) {
		pod.Seen.Rules, pod.Seen.InSets = former.Seen.Rules, former.Seen.InSets
	}
	if err := m.move.failure(pod.UID); err != nil && pod.Err == nil {
		pod.Err = fmt.Errorf("the pod cannot leave the former form of capture: %w", err)
	}
	return pod
}

// Enrol implements podAgent: a new sandbox is captured in the new form at once.
func (m moving) Enrol(ctx context.Context, pod podnetns.Pod, namespace *os.File) (interception.Decision, error) {
	defer m.move.expect(pod)()
	return m.move.to.plugin.Enrol(ctx, pod, namespace)
}

// Leave implements podAgent: each agent gives the sandbox up.
func (m moving) Leave(ctx context.Context, pod podnetns.Pod, namespace *os.File) (held bool, err error) {
	held, err = m.move.to.plugin.Leave(ctx, pod, namespace)
	if m.move.isOver() {
		return held, err
	}
	former, failed := m.move.from.plugin.Leave(ctx, pod, namespace)
	if errors.Is(failed, agent.ErrStopped) && m.move.isOver() {
		failed = nil // it has ended since
	}
	return held || former, errors.Join(err, failed)
}

// Withdraw implements meshAgent: the new agent captures no pod of these any more, and then the
// former one withdraws those that it has.
func (m moving) Withdraw(ctx context.Context, progress func(agent.Pod), uids ...string) error {
	if m.move.isOver() {
		return m.meshAgent.Withdraw(ctx, progress, uids...)
	}
	var former []string
	for _, uid := range uids {
		if m.move.has(uid) {
			former = append(former, uid)
		}
	}
	err := m.meshAgent.Withdraw(ctx, func(pod agent.Pod) {
		if !m.move.has(pod.UID) {
			progress(pod)
		}
	}, uids...)
	unknown := errors.Is(err, agent.ErrUnknownPod) && len(former) == len(uids) // to the new agent alone
	if err != nil && !unknown || len(uids) > 0 && len(former) == 0 {
		return err
	}
	return m.withdrawFormer(ctx, progress, former)
}

// withdrawFormer has the former agent withdraw pods; all if none is named.
func (m moving) withdrawFormer(ctx context.Context, progress func(agent.Pod), former []string) error {
	failed := m.move.from.operators.Withdraw(ctx, progress, former...)
	if errors.Is(failed, agent.ErrStopped) && m.move.isOver() || errors.Is(failed, agent.ErrUnknownPod) {
		failed = nil // they have moved since
	}
	return failed
}

// statuses writes the statuses of the new form. A pod that the former alone captures is not
// "pending".
type statuses struct {
	agent.Annotator

	move *move
}

// Annotate implements [agent.Annotator].
func (s statuses) Annotate(pod interception.Pod, status ambient.Status) {
	if status == ambient.StatusPending && s.move.keeps(pod.UID) {
		return
	}
	s.Annotator.Annotate(pod, status)
}

// hostErrors joins what the agents say of the host.
type hostErrors struct {
	tell func(error)

	mu   sync.Mutex
	errs [2]error
}

// of returns what one of the agents tells.
func (h *hostErrors) of(one int) func(error) {
	return func(err error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.errs[one] == nil && err == nil {
			return
		}
		h.errs[one] = err
		isUncounted := func(err error) bool { return errors.Is(err, agent.ErrUncounted) }
		wrong := slices.DeleteFunc(slices.Clone(h.errs[:]), isUncounted) // a failed count must not hide it
		h.tell(cmp.Or(errors.Join(wrong...), errors.Join(h.errs[:]...)))
	}
}
