// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"testing"

	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestRollingUpgrade: while the daemon is upgraded, and put back, node by node, pods start without end; each of them is captured, and none
// fails to start.
func TestRollingUpgrade(t *testing.T) {
	s := suite.Begin(t)
	client := s.Deploy(scenario.Workload{Name: "client"})
	for _, version := range []string{scenario.SecondVersion, scenario.FirstVersion} {
		s.WhilePodsStart(client, func() { s.InstallVersion(version) })
		for _, node := range s.Cluster.Nodes() {
			s.ExpectPluginVersion(node, version)
		}
	}
}
