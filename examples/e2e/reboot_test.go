// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"testing"

	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestReboot cuts a node's power and boots it: /run is empty, and the plugin is still in the
// network. The daemon's own pod starts, the pods of the mesh are captured again, and the others
// start too.
func TestReboot(t *testing.T) {
	suite.Long(t)
	s := suite.Begin(t)
	node := s.AddNode(s.Node(cluster.BridgeNetwork))
	s.AwaitNode(node, true)
	s.Daemon(node)
	server := scenario.Workload{Name: "server", Injected: true, Node: node.Name}
	plain := scenario.Workload{Name: "plain", Node: node.Name}
	client := s.Deploy(scenario.Workload{Name: "client", Node: s.Bridge.Name})
	s.Expect(client, s.Deploy(server), 8080, "inbound server")
	s.Expect(client, s.Deploy(plain), 8080)

	node.Kill()
	s.AwaitNode(node, false)
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	s.AwaitNode(node, true)
	s.Daemon(node)
	s.Expect(client, s.AwaitPod(server), 8080, "inbound server")
	s.Expect(client, s.AwaitPod(plain), 8080)
}
