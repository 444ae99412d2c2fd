// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestUninstall: behind the chart's uninstall the nodes' configurations are what they were to the byte, pods start without the plugin, and those
// that it has captured go on and can be deleted. Installed again, it captures again.
func TestUninstall(t *testing.T) {
	s := suite.Begin(t)
	client := s.Deploy(scenario.Workload{Name: "client"})
	before := s.Deploy(scenario.Workload{Name: "before", Injected: true})
	s.Expect(client, before, 8080, "inbound before")

	s.Cleanup("install again", s.InstallDefault)
	if err := s.Uninstall(); err != nil {
		t.Fatal(err)
	}
	for network, node := range map[cluster.Network]*cluster.Node{cluster.BridgeNetwork: s.Bridge, cluster.PointToPointNetwork: s.PointToPoint} {
		want := map[string]string{cluster.FileName: node.NetworkConfiguration(network)}
		if diff := cmp.Diff(want, s.NetworkFiles(node)); diff != "" {
			t.Errorf("CNI configurations of %s (-before +after):\n%s", node.Name, diff)
		}
		if _, err := os.Stat(node.Path("/var/run/istio-cni/istio-cni-kubeconfig")); err == nil {
			t.Errorf("the plugin's credentials are still on %s", node.Name)
		}
	}
	s.Expect(client, before, 8080, "inbound before")
	after := s.Deploy(scenario.Workload{Name: "after", Injected: true})
	s.Expect(client, after, 8080)
	s.Delete(before)
	s.Delete(after)

	s.Do("install again", s.InstallDefault)
	again := s.Deploy(scenario.Workload{Name: "again", Injected: true})
	s.Expect(client, again, 8080, "inbound again")
}
