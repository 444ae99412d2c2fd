// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/zds"
	"github.com/meshcni/meshcni/interception"
)

// Feed tells of the pods of the node and of their namespaces: first all that there are, then each
// change.
type Feed interface {
	// Next waits for the next change. While the source is away it waits. An error ends [Agent.Run].
	Next(ctx context.Context) (ambient.Change, error)
}

// learn changes what is known, and wakes the workers that it concerns. What is told again without a
// change concerns none.
func (a *Agent) learn(change ambient.Change) {
	a.mu.Lock()
	defer a.mu.Unlock()
	statuses := a.onlyStatuses(change)
	concerned, times := a.roster.Update(change, func(ambient.Pod) {})
	for of, n := range times {
		a.options.count(CountChange, of, n)
	}
	for _, uid := range change.Gone {
		delete(a.machines, uid)
	}
	begun := change.Complete && !a.roster.Complete
	if begun {
		a.roster.Complete = true
		for uid := range a.workers {
			concerned[uid] = true
		}
	}
	for uid := range concerned {
		if w := a.workers[uid]; w != nil && statuses[uid] && !begun {
			w.tellStatus()
		} else {
			a.wake(uid)
		}
	}
	if begun {
		a.takeUnwantedLocked()
		a.fresh = false
		close(a.told)
		a.clearSetsLocked()
		a.sets.nudge() // to remove members without an owner
	}
	a.roster.News()
	a.sets.nudgeToTakeOver()
}

// onlyStatuses returns the pods of which a change tells another status annotation, and nothing
// else: in most cases the agent has written it. The caller holds mu.
func (a *Agent) onlyStatuses(change ambient.Change) map[string]bool {
	only := map[string]bool{}
	for _, namespace := range change.Namespaces {
		if former, known := a.roster.Namespaces[namespace.Name]; !known || !reflect.DeepEqual(former, namespace) {
			return only
		}
	}
	for _, pod := range change.Pods {
		former, known := a.roster.Pods[pod.UID]
		only[pod.UID] = known && equalButStatus(former, pod, a.options.Vocabulary.Status)
	}
	return only
}

// equalButStatus compares two pods without a status annotation.
func equalButStatus(a, b ambient.Pod, annotation string) bool {
	for _, pod := range []*ambient.Pod{&a, &b} {
		others := map[string]string{} // not nil: a pod may have no other one
		maps.Copy(others, pod.Annotations)
		delete(others, annotation)
		pod.Annotations = others
	}
	return reflect.DeepEqual(a, b)
}

// tidySets has the pods that have lost members look for them, and clears the host's sets. It
// returns which of the members without an owner are to be removed: those that are no pod's, once
// the feed is complete.
func (a *Agent) tidySets(lost []string, strange []netip.Addr) (remove []netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, uid := range lost {
		if w := a.workers[uid]; w != nil {
			w.nudge()
		}
	}
	a.clearSetsLocked()
	if !a.roster.Complete || a.start == nil {
		return nil
	}
	return slices.DeleteFunc(strange, func(address netip.Addr) bool {
		for uid := range a.workers { // each takes its own address over
			if slices.Contains(a.roster.Pods[uid].Addresses, address) {
				return true
			}
		}
		return false
	})
}

// clearSetsLocked removes the members of pods that have no worker from the host's sets, once the
// feed is complete: their records were lost. The caller holds mu.
func (a *Agent) clearSetsLocked() {
	if !a.roster.Complete || a.start == nil {
		return
	}
	for uid := range a.sets.uids() {
		if a.workers[uid] == nil {
			a.workers[uid] = newWorker(a, uid)
			a.start(a.workers[uid])
		}
	}
}

// wake wakes the worker of a pod. A pod that is wanted gets one. The caller holds mu.
func (a *Agent) wake(uid string) {
	if w := a.workers[uid]; w != nil {
		w.nudge()
		return
	}
	if a.options.Retiring {
		return
	}
	if decision, known := a.decide(uid); known && decision.Capture && !a.roster.Pods[uid].Finished() && a.start != nil {
		a.employLocked(uid, func(*worker) {})
	}
}

// employLocked starts a worker for a pod that has none. The caller holds mu.
func (a *Agent) employLocked(uid string, prepare func(*worker)) {
	w := newWorker(a, uid)
	w.set = a.fresh && a.server.Set(zds.Workload{UID: uid}, nil) == nil // the proxy keeps the pod if it has it
	prepare(w)
	a.workers[uid] = w
	a.start(w)
}

// released makes the workers of the pods look again that have one of the addresses, which another
// pod has left.
func (a *Agent) released(uid string, addresses []netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	shared := func(address netip.Addr) bool { return slices.Contains(addresses, address) }
	for other, w := range a.workers {
		if other != uid && slices.ContainsFunc(a.roster.Pods[other].Addresses, shared) {
			w.nudge()
		}
	}
}

// decide decides about a pod, if it and its namespace are known. A pod that was withdrawn by
// command is not enrolled, nor is one that is a virtual machine. The caller holds mu.
func (a *Agent) decide(uid string) (decision interception.Decision, known bool) {
	if decision, known = a.roster.Decide(uid, a.options.Policy); decision.Capture && a.machines[uid] {
		return interception.Decision{Reason: ReasonVirtualMachine, Detail: "interface " + machineInterface, OfPod: true}, true
	}
	return decision, known
}

// wanted returns what is wanted of a pod, and the pod, as [roster.Roster.Wanted] does.
func (a *Agent) wanted(uid string) (wanted ambient.Wanted, pod ambient.Pod, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.roster.Wanted(uid, a.options.Closed, a.decide)
}
