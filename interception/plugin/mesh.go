// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"

	"github.com/meshcni/meshcni/interception/sidecar"
)

// meshOf is the mesh of the options as a configuration completes it.
func meshOf(m sidecar.Mesh, c config) sidecar.Mesh {
	m.Policy.ExcludeNamespaces = slices.Concat(m.Policy.ExcludeNamespaces, c.ExcludeNamespaces)
	if c.PodNamespace != "" {
		m.Policy.AgentNamespace = c.PodNamespace
	}
	if c.AgentName != "" {
		m.Policy.AgentName = c.AgentName
	}
	return m
}
