// SPDX-License-Identifier: Apache-2.0

package nodemode

import (
	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/interception"
)

// learn changes what is known, and has the pods looked at that it concerns, and the host if it is
// about a proxy. When the feed has told of all, that concerns all pods and all members.
func (a *Agent) learn(change ambient.Change) {
	a.mu.Lock()
	defer a.mu.Unlock()
	proxies := false
	concerned, times := a.roster.Update(change, func(pod ambient.Pod) { proxies = proxies || a.options.Policy.IsProxy(pod) })
	for of, n := range times {
		a.options.count(agent.CountChange, of, n)
	}
	if change.Complete && !a.roster.Complete {
		a.roster.Complete, proxies = true, true
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
	a.roster.News()
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
	if a.options.Retiring {
		return a.kept[uid] || len(a.host.members.of(uid)) > 0
	}
	pod, told := a.roster.Pods[uid]
	decision, known := a.decideLocked(uid)
	return known && told && decision.Capture || len(a.host.members.of(uid)) > 0 || told && a.isStatus(pod.Annotations[a.options.Vocabulary.Status])
}

// decideLocked decides about a pod, as [roster.Roster.Decide] does. The caller holds mu.
func (a *Agent) decideLocked(uid string) (decision interception.Decision, known bool) {
	return a.roster.Decide(uid, a.options.Policy)
}

// wantedLocked returns what is wanted of a pod, and the pod, as [roster.Roster.Wanted] does. The
// caller holds mu. A retiring agent wants no pod but those that it has kept.
func (a *Agent) wantedLocked(uid string) (wanted ambient.Wanted, pod ambient.Pod, known bool) {
	wanted, pod, known = a.roster.Wanted(uid, a.options.Closed, a.decideLocked)
	if wanted.Enrolled && a.options.Retiring {
		wanted.Enrolled = a.kept[uid]
	}
	if wanted.Enrolled && !a.options.Retiring && a.options.Held != nil && a.options.Held(uid) {
		wanted.Held = ambient.StepAwaitTurn
	}
	return wanted, pod, known
}
