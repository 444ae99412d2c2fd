// SPDX-License-Identifier: Apache-2.0

package repair

import (
	"net/netip"
	"time"

	"github.com/meshcni/meshcni/interception"
)

// Pod is the part of a Kubernetes Pod that decides whether it is captured and what can be done
// about it: the fields of [interception.Pod], and its status. It contains no Kubernetes types: a
// program that has a Pod object copies these fields.
type Pod struct {
	interception.Pod
	// ResourceVersion is that of the object that the other fields were copied from.
	ResourceVersion string
	// NodeName is spec.nodeName; empty until the pod is scheduled.
	NodeName string
	// RestartPolicy is spec.restartPolicy. With [RestartNever], the first failure of an init
	// container ends the pod.
	RestartPolicy RestartPolicy
	// DeletionTimestamp is metadata.deletionTimestamp; zero for a pod that is not being deleted.
	DeletionTimestamp time.Time
	// Owners are metadata.ownerReferences.
	Owners []OwnerReference
	// Phase is status.phase. An empty one counts as pending.
	Phase Phase
	// IPs are status.podIPs; empty until the pod has a network.
	IPs []netip.Addr
	// Conditions are status.conditions.
	Conditions []Condition
	// Statuses are status.initContainerStatuses, followed by status.containerStatuses.
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
// (https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy). An empty one
// counts as Always.
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
	// Controller is true of the owner that recreates the pod after its deletion. A pod has at most
	// one.
	Controller bool
}

// Condition is one of a pod's conditions.
type Condition struct {
	// Type is the condition's, such as "Ready"; Status is "True", "False" or "Unknown"; Reason is a
	// word that explains the status.
	Type, Status, Reason string
}

// Conditions that matter here
// (https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-conditions).
const (
	// conditionSandbox is "False" while a pod has no network namespace yet, and after its removal.
	conditionSandbox = "PodReadyToStartContainers"
	// conditionDisruption is "True" once the pod's removal has begun: an eviction, a taint,
	// preemption.
	conditionDisruption = "DisruptionTarget"
)

// ContainerStatus is the status of one container.
type ContainerStatus struct {
	// Name is the container's.
	Name string
	// ContainerID is containerID without the leading name of the runtime and "://"; empty until the
	// container has an id.
	ContainerID string
	// Init is true of the entries of status.initContainerStatuses: init containers and native
	// sidecars.
	Init bool
	// Started is status.started: for a native sidecar, that its startup probe has passed.
	Started bool
	// State is the current state, and Last how the previous run ended.
	State, Last ContainerState
}

// ContainerState is waiting, running or terminated; the zero value is none of them.
type ContainerState struct {
	// Waiting is the reason for waiting, such as "CrashLoopBackOff"; empty if the container is not
	// waiting.
	Waiting string
	// Running reports that the container is running.
	Running bool
	// Terminated is how the container ended; nil if it has not.
	Terminated *Termination
}

// Termination is the end of a container.
type Termination struct {
	// ExitCode is the program's exit code, or the runtime's if the program never ran.
	ExitCode int32
	// Reason is the runtime's word, such as "Error" or "OOMKilled".
	Reason string
	// Message is the container's termination message. It is text from the pod, and only shown
	// quoted.
	Message string
	// FinishedAt is the time of the end; zero if it is not known.
	FinishedAt time.Time
}

// Controller returns the owner that recreates the pod after its deletion.
func (p Pod) Controller() (OwnerReference, bool) {
	for _, owner := range p.Owners {
		if owner.Controller {
			return owner, true
		}
	}
	return OwnerReference{}, false
}

// Target returns the pod's name and the version of its object.
func (p Pod) Target() Target {
	return Target{Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion}
}

// Target is a pod at one moment of its life. UID and ResourceVersion are the preconditions of what
// is done to it
// (https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.34/#preconditions-v1-meta): a
// pod that was recreated under the same name, or has changed since, is left alone.
type Target struct {
	Namespace, Name, UID, ResourceVersion string
}

// String returns namespace and name.
func (t Target) String() string { return t.Namespace + "/" + t.Name }

func (p Pod) condition(kind string) Condition {
	for _, c := range p.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return Condition{}
}

// hasNetwork reports whether the pod's network is set up and still exists. Before that, the runtime
// may not have called the plugin.
func (p Pod) hasNetwork() bool {
	switch {
	case p.ended(), p.condition(conditionSandbox).Status == "False":
		return false
	default:
		return p.Phase == PhaseRunning || len(p.IPs) > 0
	}
}

// ending reports whether the pod's work is over although its phase does not show it yet. The node
// removes its network at about that time.
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
			return true // the other containers are never started
		case s.Init:
		case end == nil, failed && !last:
			return false
		default:
			over = true
		}
	}
	return over
}

// ended reports whether no container of the pod will run any more.
func (p Pod) ended() bool { return p.Phase == PhaseSucceeded || p.Phase == PhaseFailed }
