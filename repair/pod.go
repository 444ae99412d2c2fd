// SPDX-License-Identifier: Apache-2.0

package repair

import (
	"net/netip"
	"time"

	"github.com/meshcni/meshcni/interception"
)

// Pod is the part of a Kubernetes Pod that says whether it is captured and what can be done about it: that of [interception.Pod], and how
// it fares. It has no Kubernetes types in it: whoever has a Pod object copies these fields.
type Pod struct {
	interception.Pod
	// ResourceVersion is that of the object that the rest was copied from.
	ResourceVersion string
	// NodeName is spec.nodeName; empty until the pod is scheduled.
	NodeName string
	// RestartPolicy is spec.restartPolicy. With [RestartNever], the first end of an init container that fails is the pod's.
	RestartPolicy RestartPolicy
	// DeletionTimestamp is metadata.deletionTimestamp; zero for a pod that nobody deletes.
	DeletionTimestamp time.Time
	// Owners are metadata.ownerReferences.
	Owners []OwnerReference
	// Phase is status.phase. An empty one counts as pending.
	Phase Phase
	// IPs are status.podIPs; none until the pod has a network.
	IPs []netip.Addr
	// Conditions are status.conditions.
	Conditions []Condition
	// Statuses are status.initContainerStatuses, and behind them status.containerStatuses.
	Statuses []ContainerStatus
}

// Phase is a pod's phase
// (https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-phase).
type Phase string

// The phases.
const (
	PhasePending   Phase = "Pending"
	PhaseRunning   Phase = "Running"
	PhaseSucceeded Phase = "Succeeded"
	PhaseFailed    Phase = "Failed"
	PhaseUnknown   Phase = "Unknown"
)

// RestartPolicy is spec.restartPolicy of a pod
// (https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy). An empty one counts as Always.
type RestartPolicy string

// The restart policies.
const (
	RestartAlways    RestartPolicy = "Always"
	RestartOnFailure RestartPolicy = "OnFailure"
	RestartNever     RestartPolicy = "Never"
)

// OwnerReference is one of a pod's owners.
type OwnerReference struct {
	// Kind is the owner's kind, such as "ReplicaSet"; Name and UID are the owner's.
	Kind, Name, UID string
	// Controller is true of the owner that makes the pod anew when it is gone. A pod has one at most.
	Controller bool
}

// Condition is one of a pod's conditions.
type Condition struct {
	// Type is the condition's, such as "Ready"; Status is "True", "False" or "Unknown"; Reason is a word that says why.
	Type, Status, Reason string
}

// The conditions that matter here (https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-conditions).
const (
	// conditionSandbox is "False" as long as a pod has no network namespace, and when it has none any more.
	conditionSandbox = "PodReadyToStartContainers"
	// conditionDisruption is "True" when somebody has begun to take the pod away: an eviction, a taint, preemption.
	conditionDisruption = "DisruptionTarget"
)

// ContainerStatus is how a container fares.
type ContainerStatus struct {
	// Name is the container's.
	Name string
	// ContainerID is containerID without the runtime's name and "://" in front; empty until there is one.
	ContainerID string
	// Init is true of what status.initContainerStatuses lists: init containers and native sidecars.
	Init bool
	// Started is status.started: of a native sidecar, that its startup probe was passed.
	Started bool
	// RestartCount is how often it was started again.
	RestartCount int32
	// State is how it is now, and Last how it ended before that.
	State, Last ContainerState
}

// ContainerState is one of waiting, running and terminated; the zero value is none of them.
type ContainerState struct {
	// Waiting is why it isn't running, such as "CrashLoopBackOff"; empty when it isn't waiting.
	Waiting string
	// Running says that it runs.
	Running bool
	// Terminated is how it ended; nil when it hasn't.
	Terminated *Termination
}

// Termination is the end of a container.
type Termination struct {
	// ExitCode is the program's exit code, or one of the runtime's when there was no program.
	ExitCode int32
	// Reason is the runtime's word, such as "Error" or "OOMKilled".
	Reason string
	// Message is what the container left as its termination message. It is text from the pod, and shown quoted only.
	Message string
	// FinishedAt is when; zero when that isn't known.
	FinishedAt time.Time
}

// Controller returns the owner that makes the pod anew when it is gone.
func (p Pod) Controller() (OwnerReference, bool) {
	for _, owner := range p.Owners {
		if owner.Controller {
			return owner, true
		}
	}
	return OwnerReference{}, false
}

// Target names the pod, as the object that it was when it was looked at.
func (p Pod) Target() Target {
	return Target{Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion}
}

// Target is a pod at one moment of its life. UID and ResourceVersion are the preconditions of what is done to it
// (https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.34/#preconditions-v1-meta): a pod that was made anew under the name,
// or has changed since, is left alone.
type Target struct {
	Namespace, Name, UID, ResourceVersion string
}

// String is namespace and name.
func (t Target) String() string { return t.Namespace + "/" + t.Name }

// condition returns the pod's condition of that type.
func (p Pod) condition(kind string) Condition {
	for _, c := range p.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return Condition{}
}

// hasNetwork says whether the pod's namespace has been set up, and is there still. Before that, a plugin may not have been called.
func (p Pod) hasNetwork() bool {
	switch {
	case p.ended(), p.condition(conditionSandbox).Status == "False":
		return false
	default:
		return p.Phase == PhaseRunning || len(p.IPs) > 0
	}
}

// ending says whether the pod's work is over although its phase does not say so yet. The node takes its network away about then.
func (p Pod) ending() bool {
	if p.RestartPolicy != RestartNever && p.RestartPolicy != RestartOnFailure {
		return false
	}
	over := false
	for _, s := range p.Statuses {
		end := s.State.Terminated
		failed := end != nil && end.ExitCode != 0
		switch last := p.RestartPolicy == RestartNever; {
		case s.Init && failed && last:
			return true // the others are never started
		case s.Init:
		case end == nil, failed && !last:
			return false
		default:
			over = true
		}
	}
	return over
}

// ended says whether no container of the pod will run any more.
func (p Pod) ended() bool { return p.Phase == PhaseSucceeded || p.Phase == PhaseFailed }
