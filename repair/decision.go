// SPDX-License-Identifier: Apache-2.0

package repair

import "github.com/meshcni/meshcni/interception"

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
