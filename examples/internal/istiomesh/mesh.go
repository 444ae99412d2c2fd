// SPDX-License-Identifier: Apache-2.0

package istiomesh

import "github.com/meshcni/meshcni/interception/sidecar"

// Mesh is Istio's mesh as the plugin istio-cni serves it, without what a node's operator decides.
func Mesh() sidecar.Mesh {
	return sidecar.Mesh{Dialect: sidecar.Istio(), Owner: "istio-cni"}
}
