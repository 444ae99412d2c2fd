// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/meshcni/meshcni/examples/internal/repairconf"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

func TestMain(m *testing.M) { os.Exit(sandbox.RunTests(m)) }

// TestRulesForAPodWithUsersOfItsOwn applies rules to a pod with hostUsers: false, with each
// dataplane of repair.
func TestRulesForAPodWithUsersOfItsOwn(t *testing.T) {
	t.Parallel()
	mesh := repairconf.Config{}.Mesh()
	planned, err := mesh.Plan(interception.Pod{Containers: []interception.Container{{Name: "istio-proxy"}}}, interception.Facts{IPv6: true})
	if err != nil {
		t.Fatal(err)
	}
	all, err := dataplanes(pluginconf.IPTables)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			made, err := sandbox.NewNamespaceOfUsers(filepath.Join(t.TempDir(), "netns"))
			if err != nil {
				t.Fatal(err)
			}
			defer made.Close()
			ns, err := interception.OpenNetns(made.Path(), interception.NetnsOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer ns.Close()
			if err := c.Dataplane.Apply(t.Context(), ns, planned.Plan); err != nil {
				t.Fatal(err)
			}
			state, err := c.Dataplane.Observe(t.Context(), ns, mesh.Owner)
			if drift := interception.Diff(planned.Plan, state); err != nil || drift != nil {
				t.Errorf("observed: %v, %v", drift, err)
			}
		})
	}
}
