// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"testing"

	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestStatefulSetRecreated checks that a pod which replaces another one at once, under the same
// name, is judged by itself.
func TestStatefulSetRecreated(t *testing.T) {
	suite.Long(t)
	t.Parallel()
	s := suite.Begin(t)
	client := s.Deploy(scenario.Workload{Name: "client"})
	set := scenario.Workload{Name: "set", Injected: true}
	first := s.StatefulSet(set)
	s.Expect(client, first, 8080, "inbound set")
	s.Delete(first)
	second := s.AwaitPod(set)
	if second.Name != first.Name || second.UID == first.UID {
		t.Errorf("pod %s %s follows %s %s", second.Name, second.UID, first.Name, first.UID)
	}
	s.Expect(client, second, 8080, "inbound set")
}
