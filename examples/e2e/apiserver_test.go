// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"testing"

	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestAPIServerAway: the API server goes away while pods of the mesh start. They are captured or wait, and when it is back everything
// is as it should be.
func TestAPIServerAway(t *testing.T) {
	suite.Long(t)
	s := suite.Begin(t)
	client := s.Deploy(scenario.Workload{Name: "client"})
	var pods []scenario.Workload
	for _, name := range []string{"first", "second", "third"} {
		pods = append(pods, scenario.Workload{Name: name, Injected: true, Node: s.PointToPoint.Name})
		s.Start(pods[len(pods)-1])
	}
	server := s.Cluster.ControlPlane.APIServer
	server.Stop()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	s.Do("wait for the API server", s.Cluster.AwaitAPIServer)
	for _, pod := range pods {
		s.Expect(client, s.AwaitPod(pod), 8080, "inbound "+pod.Name)
	}
	s.AwaitNode(s.PointToPoint, true)
}
