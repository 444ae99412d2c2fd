// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"cmp"
	"net/netip"
	"reflect"
	"slices"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podnetns"
)

// Roster is what the feed has told of the pods of a node, and which of them were withdrawn by
// command. Create it with [New]. The caller guards it: no two of its methods may run at once.
type Roster struct {
	Pods       map[string]ambient.Pod // by UID
	Namespaces map[string]ambient.Namespace
	Complete   bool // the feed has told of all pods
	Withdrawn  Withdrawn

	changed chan struct{} // closed at the next news
}

// Withdrawn are the pods that were taken out of the mesh by command.
type Withdrawn struct {
	All      bool
	UIDs     map[string]bool
	Readmits int // how many there have been
}

// New returns a roster of which the feed has told nothing.
func New() Roster {
	return Roster{
		Pods: map[string]ambient.Pod{}, Namespaces: map[string]ambient.Namespace{}, Withdrawn: Withdrawn{UIDs: map[string]bool{}},
		changed: make(chan struct{}),
	}
}

// Has reports whether a pod was withdrawn.
func (w Withdrawn) Has(uid string) bool { return w.All || w.UIDs[uid] }

// Readmit ends every withdrawal.
func (r *Roster) Readmit() {
	r.Withdrawn = Withdrawn{UIDs: map[string]bool{}, Readmits: r.Withdrawn.Readmits + 1}
}

// News wakes those who wait in [Roster.AwaitDecision].
func (r *Roster) News() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Update notes namespaces and pods, and calls concern with each pod that this concerns, as it was
// and as it is. It returns their UIDs, and how many pods are new ("add"), have changed ("update")
// and are gone ("delete"). What is told again without a change concerns no pod. Complete and News
// are left to the caller.
func (r *Roster) Update(change ambient.Change, concern func(ambient.Pod)) (concerned map[string]bool, times map[string]int) {
	concerned, times = map[string]bool{}, map[string]int{}
	for _, namespace := range change.Namespaces {
		if !replaces(r.Namespaces, namespace.Name, namespace) {
			continue
		}
		for uid, pod := range r.Pods {
			if pod.Namespace == namespace.Name {
				concerned[uid] = true
			}
		}
	}
	for _, pod := range change.Pods {
		former, known := r.Pods[pod.UID]
		if !replaces(r.Pods, pod.UID, pod) {
			continue
		}
		kind := "add"
		if known {
			kind = "update"
			concern(former)
		}
		times[kind]++
		concern(pod)
		concerned[pod.UID] = true
	}
	for _, uid := range change.Gone {
		if former, known := r.Pods[uid]; known {
			times["delete"]++
			concern(former)
		}
		delete(r.Pods, uid)
		delete(r.Withdrawn.UIDs, uid)
		concerned[uid] = true
	}
	return concerned, times
}

// replaces puts an object among those that are known, and reports whether it was not there or has
// changed.
func replaces[T any](known map[string]T, key string, object T) bool {
	former, is := known[key]
	known[key] = object
	return !is || !reflect.DeepEqual(former, object)
}

// ReasonWithdrawn is the reason of a decision about a withdrawn pod that a selector matches.
const ReasonWithdrawn interception.Reason = "withdrawn"

// Decide decides about a pod, if it and its namespace are known. A pod that was withdrawn is not
// enrolled.
func (r *Roster) Decide(uid string, policy ambient.Policy) (decision interception.Decision, known bool) {
	pod, known := r.Pods[uid]
	namespace, both := r.Namespaces[pod.Namespace]
	if known = known && both; known {
		decision = ambient.Enrolled(pod, namespace, policy)
	}
	if decision.Capture && r.Withdrawn.Has(uid) || !known && r.Withdrawn.All {
		return interception.Decision{Reason: ReasonWithdrawn}, true
	}
	return decision, known
}

// Decider decides about a pod, as [Roster.Decide] does.
type Decider func(uid string) (decision interception.Decision, known bool)

// Wanted returns what is wanted of a pod, and the pod. It is not known as long as the feed may
// still tell of the pod or of its namespace.
func (r *Roster) Wanted(uid string, closed bool, decide Decider) (wanted ambient.Wanted, pod ambient.Pod, known bool) {
	pod, told := r.Pods[uid]
	withdrawn := r.Withdrawn.Has(uid)
	if !told {
		return ambient.Wanted{Gone: !withdrawn || r.Complete}, pod, withdrawn || r.Complete
	}
	if pod.Finished() {
		return ambient.Wanted{Gone: true}, pod, true
	}
	decision, known := decide(uid)
	return ambient.Wanted{Enrolled: decision.Capture, Closed: closed}, pod, known || withdrawn
}

// UID returns the UID by which the feed knows a pod: the pod's own UID, or its mirror's if the pod
// is static. A pod without a UID is found by its name, unless the feed tells of other addresses: it
// has not told of the pod's successor then. The UID is "" if the feed knows no such pod.
func (r *Roster) UID(pod podnetns.Pod) string {
	if _, told := r.Pods[pod.UID]; told {
		return pod.UID
	}
	for uid, known := range r.Pods {
		if known.Namespace != pod.Namespace || known.Name != pod.Name {
			continue
		}
		elsewhere := slices.ContainsFunc(known.Addresses, func(own netip.Addr) bool { return !slices.Contains(pod.IPs, own) })
		if pod.UID != "" && RuntimeUID(known.Pod) == pod.UID || pod.UID == "" && !known.Finished() && !elsewhere {
			return uid
		}
	}
	return ""
}

// MirrorAnnotation holds the UID by which the kubelet and the runtime know a static pod. The API
// server has only its mirror, with another UID. See
// https://kubernetes.io/docs/reference/labels-annotations-taints/#kubernetes-io-config-mirror.
const MirrorAnnotation = "kubernetes.io/config.mirror"

// RuntimeUID returns the UID by which the node knows a pod: the plugin is told of it, and cgroups
// have it.
func RuntimeUID(pod interception.Pod) string {
	return cmp.Or(pod.Annotations[MirrorAnnotation], pod.UID)
}
