// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"testing"

	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestRoutedNetwork captures a pod with a single address and a gateway that no link has, as Calico
// connects it.
func TestRoutedNetwork(t *testing.T) {
	suite.Long(t)
	s := suite.Begin(t)
	node := s.AddNode(s.Node(cluster.RoutedNetwork))
	s.AwaitNode(node, true)
	s.Daemon(node)
	routed := s.Deploy(scenario.Workload{Name: "routed", Injected: true, Node: node.Name})
	bridged := s.Deploy(scenario.Workload{Name: "bridged", Injected: true, Node: s.Bridge.Name})
	s.Expect(bridged, routed, 8080, "outbound bridged", "inbound routed")
	s.Expect(routed, bridged, 8080, "outbound routed", "inbound bridged")
}

// TestNodeWithoutNetwork creates a node's network late. The plugin is added soon after.
func TestNodeWithoutNetwork(t *testing.T) {
	suite.Long(t)
	s := suite.Begin(t)
	node := s.AddNode(s.Node(cluster.NoNetwork))
	s.AwaitNode(node, false)
	if files := s.NetworkFiles(node); len(files) != 0 {
		t.Errorf("without a network there are configurations: %v", files)
	}
	if err := node.InstallNetwork(cluster.PointToPointNetwork); err != nil {
		t.Fatal(err)
	}
	s.AwaitNode(node, true)
	s.Daemon(node)
	late := s.Deploy(scenario.Workload{Name: "late", Injected: true, Node: node.Name})
	plain := s.Deploy(scenario.Workload{Name: "plain", Node: node.Name})
	s.Expect(plain, late, 8080, "inbound late")
}
