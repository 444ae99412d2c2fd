// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
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

// follow takes over what the feed tells.
func (a *Agent) follow(ctx context.Context) error {
	for {
		change, err := a.options.Feed.Next(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("feed of the node's pods: %w", err)
		}
		a.learn(change)
	}
}

// learn changes what is known, and wakes the workers that it concerns. What is told again without a
// change concerns none.
func (a *Agent) learn(change ambient.Change) {
	a.mu.Lock()
	defer a.mu.Unlock()
	concerned := a.update(change)
	begun := change.Complete && !a.complete
	if begun {
		a.complete = true
		for uid := range a.workers {
			concerned[uid] = true
		}
	}
	for uid := range concerned {
		a.wake(uid)
	}
	if begun {
		a.takeUnwantedLocked()
		a.fresh = false
		close(a.told)
		a.clearSetsLocked()
		a.sets.nudge() // to remove members without an owner
	}
	close(a.changed)
	a.changed = make(chan struct{})
	a.sets.nudgeToTakeOver()
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
	if !a.complete || a.start == nil {
		return nil
	}
	return slices.DeleteFunc(strange, func(address netip.Addr) bool {
		for uid := range a.workers { // each takes its own address over
			if slices.Contains(a.pods[uid].Addresses, address) {
				return true
			}
		}
		return false
	})
}

// clearSetsLocked removes the members of pods that have no worker from the host's sets, once the
// feed is complete: their records were lost. The caller holds mu.
func (a *Agent) clearSetsLocked() {
	if !a.complete || a.start == nil {
		return
	}
	for uid := range a.sets.uids() {
		if a.workers[uid] == nil {
			a.workers[uid] = newWorker(a, uid)
			a.start(a.workers[uid])
		}
	}
}

// update notes namespaces and pods, and returns the UIDs of the pods that this concerns. The caller
// holds mu.
func (a *Agent) update(change ambient.Change) map[string]bool {
	concerned, added, updated, gone := map[string]bool{}, 0, 0, 0
	for _, namespace := range change.Namespaces {
		if replaces(a.namespaces, namespace.Name, namespace) {
			for uid, pod := range a.pods {
				if pod.Namespace == namespace.Name {
					concerned[uid] = true
				}
			}
		}
	}
	for _, pod := range change.Pods {
		_, known := a.pods[pod.UID]
		switch is := replaces(a.pods, pod.UID, pod); {
		case !is:
			continue
		case known:
			updated++
		default:
			added++
		}
		concerned[pod.UID] = true
	}
	for _, uid := range change.Gone {
		if _, known := a.pods[uid]; known {
			gone++
		}
		delete(a.pods, uid)
		delete(a.withdrawn.uids, uid)
		delete(a.machines, uid)
		concerned[uid] = true
	}
	for of, times := range map[string]int{"add": added, "update": updated, "delete": gone} {
		a.options.count(CountChange, of, times)
	}
	return concerned
}

// replaces puts an object among those that are known, and reports whether it was not there or has
// changed.
func replaces[T any](known map[string]T, key string, object T) bool {
	former, is := known[key]
	known[key] = object
	return !is || !reflect.DeepEqual(former, object)
}

// wake wakes the worker of a pod. A pod that is wanted gets one. The caller holds mu.
func (a *Agent) wake(uid string) {
	if w := a.workers[uid]; w != nil {
		w.nudge()
		return
	}
	if decision, known := a.decide(uid); known && decision.Capture && !a.pods[uid].Finished() && a.start != nil {
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
		if other != uid && slices.ContainsFunc(a.pods[other].Addresses, shared) {
			w.nudge()
		}
	}
}

// decide decides about a pod, if it and its namespace are known. A pod that was withdrawn by
// command is not enrolled, nor is one that is a virtual machine. The caller holds mu.
func (a *Agent) decide(uid string) (decision interception.Decision, known bool) {
	pod, known := a.pods[uid]
	namespace, both := a.namespaces[pod.Namespace]
	if known = known && both; known {
		decision = ambient.Enrolled(pod, namespace, a.options.Policy)
	}
	if decision.Capture && a.withdrawn.has(uid) || !known && a.withdrawn.all {
		return interception.Decision{Reason: ReasonWithdrawn}, true
	}
	if decision.Capture && a.machines[uid] {
		return interception.Decision{Reason: ReasonVirtualMachine, Detail: "interface " + machineInterface, OfPod: true}, true
	}
	return decision, known
}

// wanted returns what is wanted of a pod, and the pod. It is not known as long as the feed may
// still tell of the pod or of its namespace.
func (a *Agent) wanted(uid string) (wanted ambient.Wanted, pod ambient.Pod, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	pod, told := a.pods[uid]
	withdrawn := a.withdrawn.has(uid)
	if !told {
		return ambient.Wanted{Gone: !withdrawn || a.complete}, pod, withdrawn || a.complete
	}
	if pod.Finished() {
		return ambient.Wanted{Gone: true}, pod, true
	}
	decision, known := a.decide(uid)
	return ambient.Wanted{Enrolled: decision.Capture, Closed: a.options.Closed}, pod, known || withdrawn
}
