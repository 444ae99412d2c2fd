// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"fmt"
	"slices"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
)

// Mesh is what a mesh does with a pod.
type Mesh struct {
	// Dialect is the vocabulary of its annotations.
	Dialect sidecar.Dialect
	// Policy says which pods are captured. Its Membership is the Dialect's.
	Policy sidecar.Policy
	// Owner is whose rules they are.
	Owner interception.Owner
}

func (m Mesh) validate() error {
	if err := m.Owner.Validate(); err != nil {
		return fmt.Errorf("owner of the rules: %w", err)
	}
	if m.Dialect.Membership == (sidecar.Membership{}) {
		return errors.New("the dialect has no Membership: no pod would be captured")
	}
	return m.Dialect.Validate()
}

// as is the mesh as a configuration completes it.
func (m Mesh) as(c config) Mesh {
	m.Policy.Membership = m.Dialect.Membership
	m.Policy.ExcludeNamespaces = slices.Concat(m.Policy.ExcludeNamespaces, c.ExcludeNamespaces)
	if c.PodNamespace != "" {
		m.Policy.AgentNamespace = c.PodNamespace
	}
	if c.AgentName != "" {
		m.Policy.AgentName = c.AgentName
	}
	return m
}
