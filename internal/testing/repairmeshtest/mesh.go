// SPDX-License-Identifier: Apache-2.0

package repairmeshtest

import (
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/internal/repairmesh"
)

// Istio returns the mesh of Istio's sidecars in the form that package repair uses.
func Istio() repairmesh.Mesh {
	return repairmesh.Mesh{Sidecar: sidecar.Mesh{Dialect: sidecar.Istio(), Owner: "istio-cni"}}
}
