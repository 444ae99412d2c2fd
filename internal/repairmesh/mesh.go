// SPDX-License-Identifier: Apache-2.0

package repairmesh

import (
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/repair"
)

// Mesh is a mesh whose proxies are sidecars. It has what [repair.Criteria] and package inplace ask for.
type Mesh struct {
	Sidecar sidecar.Mesh
}

// Decide says whether the mesh captures the pod.
func (m Mesh) Decide(pod interception.Pod) repair.Decision {
	d := m.Sidecar.Decide(pod)
	return repair.Decision{Captured: d.Capture, Reason: repair.Reason(d.Reason), Detail: d.Detail, OfPod: d.Reason.OfPod()}
}

// Validate says what is wrong with the mesh.
func (m Mesh) Validate() error { return m.Sidecar.Validate() }

// Owner is whose rules the mesh's are.
func (m Mesh) Owner() interception.Owner { return m.Sidecar.Owner }

// Plan is the plan of a pod that the mesh captures. Its warnings were told of when the pod was made.
func (m Mesh) Plan(pod interception.Pod, facts interception.Facts) (*interception.Plan, error) {
	planned, err := m.Sidecar.Plan(pod, facts)
	return planned.Plan, err
}
