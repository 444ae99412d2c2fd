// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"fmt"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/repair"
)

// RefusalError is the error for a pod whose namespace is left as it is.
type RefusalError struct {
	// Pod is the pod that was refused.
	Pod repair.Target
	// Reason is a word for logs and metrics, Detail a sentence without a full stop.
	Reason Reason
	Detail string
	// Leads are those that were followed to find the namespace.
	Leads []Lead
	// Err is the system's error; nil if nothing failed.
	Err error
}

// Reason is why a pod is refused. The texts are stable: logs and metrics use them.
type Reason string

// The reasons.
const (
	// ReasonIncomplete: the pod's object has no UID or no address yet.
	ReasonIncomplete Reason = "incomplete"
	// ReasonHostNetwork: the pod is in the host's namespace, or all leads end in the host's
	// namespace or this process's own.
	ReasonHostNetwork Reason = "host-network"
	// ReasonNotFound: nothing on the node leads to the pod.
	ReasonNotFound Reason = "not-found"
	// ReasonVanished: what led to the pod no longer exists.
	ReasonVanished Reason = "vanished"
	// ReasonAnotherUID: the node knows another pod of this name, an earlier or a later one.
	ReasonAnotherUID Reason = "another-uid"
	// ReasonAnotherAddress: the namespaces that were found have none of the pod's addresses.
	ReasonAnotherAddress Reason = "another-address"
	// ReasonUnproven: a namespace has the pod's address, but nothing shows that it is the pod's.
	ReasonUnproven Reason = "unproven"
	// ReasonAmbiguous: leads that count lead to different namespaces.
	ReasonAmbiguous Reason = "ambiguous"
	// ReasonShared: processes of another pod are in the namespace.
	ReasonShared Reason = "shared"
	// ReasonUnreadable: something that may lead to the pod cannot be read.
	ReasonUnreadable Reason = "unreadable"
	// ReasonChanged: the plan differs from the pod's record, or the namespace has come to hold
	// rules that are not recorded.
	ReasonChanged Reason = "changed"
	// ReasonUnrepaired: the rules were applied, but the namespace still differs from the plan.
	ReasonUnrepaired Reason = "unrepaired"
)

// remedy returns what the operator can do about a reason.
func (r Reason) remedy() string {
	switch r {
	case ReasonIncomplete:
		return "wait until the pod has an address, and look again"
	case ReasonHostNetwork:
		return "pods in the host's network are never captured: take them out of the mesh"
	case ReasonNotFound:
		return "have the process see the host's proc, the runtime's directory of network namespaces and libcni's cache, or have the pod created again"
	case ReasonVanished, ReasonAnotherUID:
		return "the pod has ended or was made anew: look at it again"
	case ReasonAnotherAddress, ReasonUnproven:
		return "nothing is done on the ground of an address alone: have the pod created again"
	case ReasonAmbiguous, ReasonShared:
		return "look who has made these namespaces (lsns -t net), and have the pod created again"
	case ReasonUnreadable:
		return "run as root with CAP_SYS_PTRACE and CAP_SYS_ADMIN, and mount the host's directories with mountPropagation HostToContainer"
	case ReasonChanged:
		return "look at the pod again, or have it created again"
	case ReasonUnrepaired:
		return "look who changes the rules of the namespace meanwhile"
	default:
		return "have the pod created again"
	}
}

// Error returns the pod, the reason, the system's error, the leads and a remedy.
func (r *RefusalError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "pod %s (uid %s) is not repaired in place: %s", r.Pod, r.Pod.UID, r.Detail)
	if r.Err != nil {
		fmt.Fprintf(&b, ": %v", r.Err)
	}
	for i, lead := range r.Leads {
		if i == maxListed {
			fmt.Fprintf(&b, "; and %d more", len(r.Leads)-i)
			break
		}
		b.WriteString("; " + lead.String())
	}
	return b.String() + "; " + r.Reason.remedy()
}

// Unwrap returns the system's error.
func (r *RefusalError) Unwrap() error { return r.Err }

// maxListed is how many leads an error lists.
const maxListed = 8

// Source is where a lead comes from. The texts are stable.
type Source string

// The sources.
const (
	// SourceJournal is the plugin's record of the rules that it applied.
	SourceJournal Source = "journal"
	// SourceResults is libcni's cache of results.
	SourceResults Source = "results"
	// SourceProcesses are the cgroups of processes.
	SourceProcesses Source = "processes"
	// SourceNetns is the runtime's directory of network namespaces. It shows no UID, so such a lead
	// never counts: the directory is searched only if no other lead counts, to explain the refusal.
	SourceNetns Source = "netns"
)

// Lead is something that may lead to a pod's network namespace.
type Lead struct {
	// Source is where the lead comes from, At what it is: a path, or a process.
	Source Source
	At     string
	// Netns is the namespace that the lead ends in; zero if it was not established.
	Netns interception.NetnsID
	// Reason and Against explain why the lead does not count; empty if it does.
	Reason  Reason
	Against string
}

// String returns the lead in one line.
func (l Lead) String() string {
	text := string(l.Source) + ": " + l.At
	if l.Netns != (interception.NetnsID{}) {
		text += fmt.Sprintf(" (net:[%d])", l.Netns.Inode)
	}
	if l.Against != "" {
		text += ": " + l.Against
	}
	return text
}
