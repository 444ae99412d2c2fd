// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"testing"

	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestDaemonDeleted starts pods while a node's daemon is deleted and replaced. They are captured.
func TestDaemonDeleted(t *testing.T) {
	suite.Long(t)
	s := suite.Begin(t)
	client := s.Deploy(scenario.Workload{Name: "client"})
	s.WhilePodsStart(client, func() {
		for _, node := range s.Cluster.Nodes() {
			old := s.Daemon(node)
			s.Delete(old)
			if s.Daemon(node).UID == old.UID {
				t.Errorf("the daemon of %s is still the one that was deleted", node.Name)
			}
		}
	})
}
