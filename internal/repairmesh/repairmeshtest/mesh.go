// SPDX-License-Identifier: Apache-2.0

package repairmeshtest

import (
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/internal/repairmesh"
)

// Istio is the mesh of Istio's sidecars as package repair sees it.
func Istio() repairmesh.Mesh {
	return repairmesh.Mesh{Sidecar: sidecar.Mesh{Dialect: sidecar.Istio(), Owner: "istio-cni"}}
}
