// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"testing"

	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestInjectedDeployment checks that traffic into and out of an injected pod passes its proxy, in
// both families, on one node and between two with different networks.
func TestInjectedDeployment(t *testing.T) {
	t.Parallel()
	s := suite.Begin(t)
	server := s.Deploy(scenario.Workload{Name: "server", Injected: true, Node: s.Bridge.Name})
	near := s.Deploy(scenario.Workload{Name: "near", Injected: true, Node: s.Bridge.Name})
	far := s.Deploy(scenario.Workload{Name: "far", Injected: true, Node: s.PointToPoint.Name})
	plain := s.Deploy(scenario.Workload{Name: "plain", Node: s.PointToPoint.Name})
	if len(server.Status.PodIPs) != 2 {
		t.Errorf("the pod has the addresses %v, not one of each family", server.Status.PodIPs)
	}
	s.Expect(near, server, 8080, "outbound near", "inbound server")
	s.Expect(far, server, 8080, "outbound far", "inbound server")
	s.Expect(server, far, 8080, "outbound server", "inbound far")
	s.Expect(far, plain, 8080, "outbound far")
	s.Expect(plain, server, 8080, "inbound server")
}
