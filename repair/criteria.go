// SPDX-License-Identifier: Apache-2.0

package repair

import (
	"time"

	"github.com/meshcni/meshcni/interception"
)

// Criteria are what a pod is judged by.
type Criteria struct {
	// Mesh says which pods are captured, and which the operator excluded, as it does to the plugin. Without one, no pod is ours.
	Mesh Mesh
	// Node is the name of the node that is looked after; with an empty one, every node's pods are.
	Node string
	// Validators are those that pods of the mesh may have. Without any, only the kernel speaks.
	Validators []Validator
	// Planner is the version of the program that would plan now; empty when that is of no account.
	Planner string
	// Observed is what is known of the one pod, beyond its object. The zero value: nobody has looked.
	Observed Observation
}

func (c Criteria) decide(pod interception.Pod) Decision {
	if c.Mesh == nil {
		return Decision{Reason: reasonNoMesh}
	}
	return c.Mesh.Decide(pod)
}

// Observation is what a node knows of one pod.
type Observation struct {
	// State is what the pod's network namespace holds for the plugin's owner, as [interception.Dataplane.Observe] reads it; nil when
	// nobody has looked.
	State *interception.State
	// UID is that of the pod whose namespace it was, as the one who found it has established. A State without it is not believed.
	UID string
	// Record is what was recorded when rules were applied to the pod; nil when there is none.
	Record *Record
	// Unrecorded says that all records were read, and that none is of this pod. Without it, a nil Record may be one that could not be read,
	// or that nobody has looked for.
	Unrecorded bool
	// Today is the plan that would be made now of the pod's annotations; nil when that isn't known. What the record says takes
	// precedence wherever there is one.
	Today *interception.Plan
}

// Record is what was recorded when rules were applied to a pod: by an ADD, or by a repair since.
type Record struct {
	// UID is the pod's. A record of another pod of the same name is not believed.
	UID string
	// Time is when.
	Time time.Time
	// Planner is the version of the program that planned it.
	Planner string
	// Plan is what was applied.
	Plan *interception.Plan
}

// Mesh decides about pods as the plugin does, by the pod alone.
type Mesh interface {
	// Decide says whether the mesh captures the pod, and why.
	Decide(pod interception.Pod) Decision
}

// Decision is whether a mesh captures a pod.
type Decision struct {
	// Captured says whether the mesh captures the pod.
	Captured bool
	// Reason names what decided. A pod that is not captured is [NotOurs] for it.
	Reason Reason
	// Detail is what was found: a namespace, a container, a key with its value. It may be empty.
	Detail string
	// OfPod says that whoever may edit the pod can bring the decision about, as by a label. A pod that has a record is the mesh's all the same.
	OfPod bool
}

// String is the reason and its detail.
func (d Decision) String() string {
	if d.Detail == "" {
		return string(d.Reason)
	}
	return string(d.Reason) + " (" + d.Detail + ")"
}
