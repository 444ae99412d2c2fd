// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"strings"
	"testing"

	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestJob checks that a Job in the mesh is captured and ends.
func TestJob(t *testing.T) {
	suite.Long(t)
	t.Parallel()
	s := suite.Begin(t)
	server := s.Deploy(scenario.Workload{Name: "server", Injected: true})
	said := s.Job(scenario.Workload{Name: "job", NativeSidecar: true, Arguments: append([]string{"get"}, scenario.URLs(server, 8080)...)})
	if strings.Count(said, `"via":["outbound job","inbound server"]`) != 2 {
		t.Errorf("the Job was answered %s", said)
	}
}
