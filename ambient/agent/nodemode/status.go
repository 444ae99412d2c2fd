// SPDX-License-Identifier: Apache-2.0

package nodemode

import (
	"slices"
	"strings"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/ambient/agent/internal/roster"
	"github.com/meshcni/meshcni/ambient/zds"
)

// proxyState is what the agent's loop has seen of the proxy last. The agent's mu guards it.
type proxyState struct {
	listens bool
	since   time.Time // when listens became what it is; zero before the first time
	err     error     // why the host is not as it should be
}

// Pods returns how far the agent is with each pod that it deals with, in no order.
func (a *Agent) Pods() []agent.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []agent.Pod
	for _, e := range a.entries {
		all = append(all, e.state)
	}
	return all
}

// Status returns what the agent knows, of the pods with one of the UIDs if any are given, and
// otherwise of all. A static pod has two UIDs, and each is enough. Status does not look at the
// kernel. The proxy does not connect to the agent: it counts as one connection while it has its
// listeners.
func (a *Agent) Status(uids ...string) agent.Status {
	asked := func(uid string) bool { return len(uids) == 0 || slices.Contains(uids, uid) }
	a.mu.Lock()
	defer a.mu.Unlock()
	status := agent.Status{Complete: a.roster.Complete, Withdrawn: a.roster.Withdrawn.All, Proxy: a.proxyState.status()}
	for uid, pod := range a.roster.Pods {
		of := roster.RuntimeUID(pod.Pod)
		if !asked(uid) && !asked(of) {
			continue
		}
		one := agent.PodStatus{
			Pod: agent.Pod{UID: uid, Namespace: pod.Namespace, Name: pod.Name}, Addresses: slices.Clone(pod.Addresses),
			Annotation: ambient.Status(pod.Annotations[a.options.Vocabulary.Status]),
		}
		if of != uid {
			one.RuntimeUID = of
		}
		one.Decision, _ = a.decideLocked(uid)
		if e := a.entries[uid]; e != nil {
			one.Pod = e.state
			one.Namespace, one.Name = pod.Namespace, pod.Name
		}
		status.Pods = append(status.Pods, one)
	}
	for uid, e := range a.entries {
		if _, told := a.roster.Pods[uid]; !told && asked(uid) {
			status.Pods = append(status.Pods, agent.PodStatus{Pod: e.state})
		}
	}
	slices.SortFunc(status.Pods, func(a, b agent.PodStatus) int {
		return strings.Compare(a.Namespace+"/"+a.Name+"/"+a.UID, b.Namespace+"/"+b.Name+"/"+b.UID)
	})
	return status
}

func (p proxyState) status() zds.Status {
	status := zds.Status{Err: p.err}
	switch {
	case p.listens:
		status.Connections, status.Connected = 1, p.since
	case !p.since.IsZero():
		status.Lost = p.since
	}
	return status
}
