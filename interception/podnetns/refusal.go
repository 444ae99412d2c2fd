// SPDX-License-Identifier: Apache-2.0

package podnetns

import (
	"fmt"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// RefusalError means that a pod's network namespace is not known beyond doubt.
type RefusalError struct {
	Pod Pod
	// Obstacle is a word for logs and metrics, Detail a sentence without a full stop.
	Obstacle Obstacle
	Detail   string
	// Leads are those that were followed. If the obstacle is [ObstacleAmbiguous] or
	// [ObstacleShared], they are only those that count.
	Leads []Lead

	cause error
}

// Unwrap returns why [Finder.Verify] refuses what was handed over, such as
// [interception.ErrHostNetns]; nil for a refusal of Find.
func (r *RefusalError) Unwrap() error { return r.cause }

// Obstacle is why a pod's namespace is not returned, or why a lead does not count. The texts are
// stable: logs and metrics use them.
type Obstacle string

// The obstacles.
const (
	// ObstacleIncomplete: the pod's object has no UID or no address yet.
	ObstacleIncomplete Obstacle = "incomplete"
	// ObstacleHostNetwork: the pod is in the host's namespace, or all leads end in the host's
	// namespace or this process's own.
	ObstacleHostNetwork Obstacle = "host-network"
	// ObstacleNotFound: nothing on the node leads to the pod.
	ObstacleNotFound Obstacle = "not-found"
	// ObstacleVanished: what led to the pod no longer exists.
	ObstacleVanished Obstacle = "vanished"
	// ObstacleAnotherUID: the node knows another pod of this name, an earlier or a later one.
	ObstacleAnotherUID Obstacle = "another-uid"
	// ObstacleAnotherAddress: the namespaces that were found have none of the pod's addresses.
	ObstacleAnotherAddress Obstacle = "another-address"
	// ObstacleUnproven: a namespace has the pod's address, but nothing shows that it is the pod's.
	ObstacleUnproven Obstacle = "unproven"
	// ObstacleAmbiguous: leads that count lead to different namespaces.
	ObstacleAmbiguous Obstacle = "ambiguous"
	// ObstacleShared: processes of another pod are in the namespace.
	ObstacleShared Obstacle = "shared"
	// ObstacleNotNetns: what was handed over is not a network namespace.
	ObstacleNotNetns Obstacle = "not-netns"
	// ObstacleUnreadable: something that may lead to the pod cannot be read.
	ObstacleUnreadable Obstacle = "unreadable"
)

// remedy returns what the operator can do about an obstacle.
func (o Obstacle) remedy() string {
	switch o {
	case ObstacleIncomplete:
		return "wait until the pod has an address, and look again"
	case ObstacleHostNetwork:
		return "pods in the host's network are never captured: take them out of the mesh"
	case ObstacleNotFound:
		return "have the process see the host's proc, the runtime's directory of network namespaces and libcni's cache, or have the pod created again"
	case ObstacleVanished, ObstacleAnotherUID:
		return "the pod has ended or was created again: look at it again"
	case ObstacleAnotherAddress, ObstacleUnproven:
		return "an address alone proves nothing: have the pod created again"
	case ObstacleAmbiguous, ObstacleShared:
		return "find out which program made these namespaces (lsns -t net), and have the pod created again"
	case ObstacleNotNetns:
		return "have the sender open the pod's namespace, such as /proc/PID/ns/net or a file in /run/netns, and send that descriptor"
	case ObstacleUnreadable:
		return "run as root with CAP_SYS_PTRACE and CAP_SYS_ADMIN, and mount the host's directories with mountPropagation HostToContainer"
	default:
		return "have the pod created again"
	}
}

// Error returns the pod, the detail, the leads and a remedy.
func (r *RefusalError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "find the network namespace of pod %s (uid %s): %s", r.Pod, r.Pod.UID, r.Detail)
	for i, lead := range r.Leads {
		if i == maxListed {
			fmt.Fprintf(&b, "; and %d more", len(r.Leads)-i)
			break
		}
		b.WriteString("; " + lead.String())
	}
	return b.String() + "; " + r.Obstacle.remedy()
}

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
	// Obstacle and Against explain why the lead does not count; empty if it does.
	Obstacle Obstacle
	Against  string
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
