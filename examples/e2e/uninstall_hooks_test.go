// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"testing"

	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestUninstallWithoutHooks runs helm uninstall --no-hooks, which deletes the DaemonSet, roles and
// service account within a second, without waiting. The daemons are stopped after that, and still
// restore the nodes.
func TestUninstallWithoutHooks(t *testing.T) {
	suite.Long(t)
	s := suite.Begin(t)
	client := s.Deploy(scenario.Workload{Name: "client"})
	before := s.Deploy(scenario.Workload{Name: "before", Injected: true})
	daemons := s.Daemons()
	s.Do("uninstall without hooks", func(context.Context) error { return s.UninstallReleaseWithoutHooks(scenario.ReleaseName) })
	s.AwaitEndOf(daemons...)
	expectGone(t, s, client, before)
}
