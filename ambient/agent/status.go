// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/internal/roster"
	"github.com/meshcni/meshcni/ambient/zds"
	"github.com/meshcni/meshcni/interception"
)

// Status is what the agent knows of its node.
type Status struct {
	// Complete reports whether the feed has told of all pods of the node. Before, others may exist.
	Complete bool
	// Withdrawn reports whether all pods were taken out of the mesh ([Agent.Withdraw]).
	Withdrawn bool
	// Proxy is how the node's proxy is connected.
	Proxy zds.Status
	// Pods are those that the feed has told of and those that the agent deals with, by name.
	Pods []PodStatus
}

// PodStatus is what the agent knows of a pod.
type PodStatus struct {
	// Pod is how far the agent is with the pod. It has nothing but the identity, and a zero Since, if
	// the agent does not deal with the pod: then nothing is wanted of it, and nothing was seen.
	Pod
	// RuntimeUID is the UID by which the node knows the pod, if that is not UID, which is then that of
	// a static pod's mirror.
	RuntimeUID string
	// Decision is whether the pod is enrolled, and why. Its reason is empty if the feed has not told
	// of the pod or of its namespace.
	Decision interception.Decision
	// Addresses are the pod's, as the feed tells them.
	Addresses []netip.Addr
	// Annotation is the status annotation of the pod's object, as the feed told it last.
	Annotation ambient.Status
}

// Status returns what the agent knows, of the pods with one of the UIDs if any are given, and
// otherwise of all. A static pod has two UIDs, and each is enough. Status looks neither at the
// kernel nor at the proxy.
func (a *Agent) Status(uids ...string) Status {
	asked := func(uid string) bool { return len(uids) == 0 || slices.Contains(uids, uid) }
	a.mu.Lock()
	defer a.mu.Unlock()
	status := Status{Complete: a.roster.Complete, Withdrawn: a.roster.Withdrawn.All, Proxy: a.server.Status()}
	for uid, pod := range a.roster.Pods {
		of := roster.RuntimeUID(pod.Pod)
		if !asked(uid) && !asked(of) {
			continue
		}
		one := PodStatus{
			Pod: Pod{UID: uid, Namespace: pod.Namespace, Name: pod.Name}, Addresses: slices.Clone(pod.Addresses),
			Annotation: ambient.Status(pod.Annotations[a.options.Vocabulary.Status]),
		}
		if of != uid {
			one.RuntimeUID = of
		}
		one.Decision, _ = a.decide(uid)
		if w := a.workers[uid]; w != nil {
			one.Pod = w.current()
			one.Namespace, one.Name = pod.Namespace, pod.Name
		}
		status.Pods = append(status.Pods, one)
	}
	for uid, w := range a.workers {
		if _, told := a.roster.Pods[uid]; !told && asked(uid) {
			status.Pods = append(status.Pods, PodStatus{Pod: w.current()})
		}
	}
	slices.SortFunc(status.Pods, func(a, b PodStatus) int { return comparePods(a.Pod, b.Pod) })
	return status
}
