// SPDX-License-Identifier: Apache-2.0

package repairmesh

import (
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/repair"
)

// Mesh is a mesh whose proxies are sidecars. It implements the meshes of [repair.Criteria] and of
// package inplace.
type Mesh struct {
	Sidecar sidecar.Mesh
}

// Decide returns whether the mesh captures the pod, and why.
func (m Mesh) Decide(pod interception.Pod) repair.Decision {
	d := m.Sidecar.Decide(pod)
	return repair.Decision{Captured: d.Capture, Reason: repair.Reason(d.Reason), Detail: d.Detail, OfPod: d.Reason.OfPod()}
}

// Validate returns an error for invalid settings of the mesh.
func (m Mesh) Validate() error { return m.Sidecar.Validate() }

// Owner returns the owner of the mesh's rules.
func (m Mesh) Owner() interception.Owner { return m.Sidecar.Owner }

// Plan returns the plan of a captured pod. It drops the warnings, which were reported when the pod
// was created.
func (m Mesh) Plan(pod interception.Pod, facts interception.Facts) (*interception.Plan, error) {
	planned, err := m.Sidecar.Plan(pod, facts)
	return planned.Plan, err
}
