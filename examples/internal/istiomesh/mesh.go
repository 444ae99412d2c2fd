// SPDX-License-Identifier: Apache-2.0

package istiomesh

import "github.com/meshcni/meshcni/interception/sidecar"

// Mesh returns Istio's mesh as the plugin istio-cni serves it, without the operator's settings.
func Mesh() sidecar.Mesh {
	return sidecar.Mesh{Dialect: sidecar.Istio(), Owner: "istio-cni"}
}
