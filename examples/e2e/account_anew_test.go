// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestServiceAccountMadeAnew deletes and recreates the service account, then restarts all daemons.
// Each is stopped while the API server refuses its token, which is no reason to uninstall. Pods
// start throughout, and each is captured without repair.
func TestServiceAccountMadeAnew(t *testing.T) {
	suite.Long(t)
	s := suite.BeginWith(t, withoutRepair())
	client := s.Deploy(scenario.Workload{Name: "client"})
	before, daemons := written(t, s), s.Daemons()
	s.WhilePodsStartOrWait(client, func() {
		s.RevokeTokens()
		s.RestartDaemons()
		s.AwaitEndOf(daemons...)
	})
	if diff := cmp.Diff(before, written(t, s)); diff != "" {
		t.Errorf("the CNI configurations were written (-before +after):\n%s", diff)
	}
}

// withoutRepair leaves a pod that started uncaptured as it is.
func withoutRepair() scenario.Values {
	return scenario.Values{"settings": scenario.Values{"excludeNamespaces": []any{"kube-system"}, "repairEnabled": false}}
}

// written returns when each CNI configuration of the nodes was last written. An uninstall writes,
// even if an installation follows.
func written(t *testing.T, s *scenario.Scenario) map[string]time.Time {
	t.Helper()
	times := map[string]time.Time{}
	for _, node := range s.Cluster.Nodes() {
		directory := node.Path("/etc/cni/net.d")
		err := fs.WalkDir(os.DirFS(directory), ".", func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			info, err := entry.Info()
			if err == nil {
				times[filepath.Join(node.Name, name)] = info.ModTime()
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return times
}
