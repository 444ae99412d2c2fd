// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/repair"
)

// Namespaces knows the network namespaces of the node's pods, and what was recorded of them. It is safe for use by several goroutines, which
// never ask about the same pod at a time. Package repair/inplace has one.
type Namespaces interface {
	// Observe says what is known of a pod beyond its object, and changes nothing. What couldn't be found out is left out of the
	// observation, and the error says why; what is in the observation counts all the same: a record without a namespace, for example.
	// Pods that the mesh's policy leaves alone now are asked about, too, since a record may say that they were captured: without a
	// record nobody has to look for the namespace of such a pod.
	Observe(ctx context.Context, pod repair.Pod) (repair.Observation, error)
	// Repair puts the plan into the namespace of the very pod, sparing connections that live there, verifies it and records it. The plan is
	// that of the finding, which came from an observation a moment ago: what the namespace holds is looked at once more before anything
	// is changed. An error means that the pod is not known to be repaired; it says what was in the way, also where it was refused.
	Repair(ctx context.Context, pod repair.Pod, plan *interception.Plan) error
}
