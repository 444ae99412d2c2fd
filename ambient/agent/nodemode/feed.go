// SPDX-License-Identifier: Apache-2.0

package nodemode

import (
	"context"
	"fmt"
	"reflect"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/interception"
)

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

// learn changes what is known, and has the pods looked at that it concerns, and the host if it is
// about a proxy. When the feed has told of all, that concerns all pods and all members.
func (a *Agent) learn(change ambient.Change) {
	a.mu.Lock()
	defer a.mu.Unlock()
	concerned, proxies := a.updateLocked(change)
	if change.Complete && !a.complete {
		a.complete, proxies = true, true
		for uid := range a.entries {
			concerned[uid] = true
		}
		for _, uid := range a.host.members.pods() {
			concerned[uid] = true
		}
	}
	if proxies {
		a.hostDueLocked(0)
	}
	for uid := range concerned {
		a.wakeLocked(uid)
	}
	a.newsLocked()
}

// updateLocked notes namespaces and pods. It returns the UIDs of the pods that this concerns, and
// whether one of them is a proxy. The caller holds mu.
func (a *Agent) updateLocked(change ambient.Change) (concerned map[string]bool, proxies bool) {
	concerned = map[string]bool{}
	times := map[string]int{}
	isProxy := a.options.Policy.IsProxy
	for _, namespace := range change.Namespaces {
		a.nameLocked(namespace, concerned)
	}
	for _, pod := range change.Pods {
		former, known := a.pods[pod.UID]
		if known && reflect.DeepEqual(former, pod) {
			continue
		}
		times[map[bool]string{true: "update", false: "add"}[known]]++
		proxies = proxies || isProxy(pod) || known && isProxy(former)
		a.pods[pod.UID], concerned[pod.UID] = pod, true
	}
	for _, uid := range change.Gone {
		if former, known := a.pods[uid]; known {
			times["delete"]++
			proxies = proxies || isProxy(former)
		}
		delete(a.pods, uid)
		delete(a.withdrawn.uids, uid)
		concerned[uid] = true
	}
	for of, n := range times {
		a.options.count(agent.CountChange, of, n)
	}
	return concerned, proxies
}

// nameLocked notes a namespace, and which pods concerns what is new of it. The caller holds mu.
func (a *Agent) nameLocked(namespace ambient.Namespace, concerned map[string]bool) {
	if former, is := a.namespaces[namespace.Name]; is && reflect.DeepEqual(former, namespace) {
		return
	}
	a.namespaces[namespace.Name] = namespace
	for uid, pod := range a.pods {
		if pod.Namespace == namespace.Name {
			concerned[uid] = true
		}
	}
}

// wakeLocked has a pod looked at if there is something to do for it, or may be. The caller holds
// mu.
func (a *Agent) wakeLocked(uid string) {
	e := a.entries[uid]
	if e == nil {
		if !a.concernsLocked(uid) {
			return
		}
		e = newEntry(uid)
		a.entries[uid] = e
	}
	a.dueLocked(e)
}

// concernsLocked reports whether a pod is to be enrolled, or has something of the agent's: a member
// or a status. The caller holds mu.
func (a *Agent) concernsLocked(uid string) bool {
	if uid == "" {
		return false
	}
	pod, told := a.pods[uid]
	decision, known := a.decideLocked(uid)
	return known && told && decision.Capture || len(a.host.members.of(uid)) > 0 || told && a.isStatus(pod.Annotations[a.options.Vocabulary.Status])
}

// decideLocked decides about a pod, if it and its namespace are known. A pod that was withdrawn by
// command is not enrolled. The caller holds mu.
func (a *Agent) decideLocked(uid string) (decision interception.Decision, known bool) {
	pod, known := a.pods[uid]
	namespace, both := a.namespaces[pod.Namespace]
	if known = known && both; known {
		decision = ambient.Enrolled(pod, namespace, a.options.Policy)
	}
	if decision.Capture && a.withdrawn.has(uid) || !known && a.withdrawn.all {
		return interception.Decision{Reason: agent.ReasonWithdrawn}, true
	}
	return decision, known
}

// wantedLocked returns what is wanted of a pod, and the pod. It is not known as long as the feed
// may still tell of the pod or of its namespace. The caller holds mu.
func (a *Agent) wantedLocked(uid string) (wanted ambient.Wanted, pod ambient.Pod, known bool) {
	pod, told := a.pods[uid]
	withdrawn := a.withdrawn.has(uid)
	if !told {
		return ambient.Wanted{Gone: !withdrawn || a.complete}, pod, withdrawn || a.complete
	}
	if pod.Finished() {
		return ambient.Wanted{Gone: true}, pod, true
	}
	decision, known := a.decideLocked(uid)
	return ambient.Wanted{Enrolled: decision.Capture, Closed: a.options.Closed}, pod, known || withdrawn
}
