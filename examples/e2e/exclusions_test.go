// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"strings"
	"testing"

	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestExcludedInboundPorts excludes one port by an annotation. Only that port bypasses the proxy.
func TestExcludedInboundPorts(t *testing.T) {
	suite.Long(t)
	t.Parallel()
	s := suite.Begin(t)
	server := s.Deploy(scenario.Workload{
		Name: "server", Injected: true, Ports: []int{8080, 9090},
		Annotations: map[string]string{"traffic.sidecar.istio.io/excludeInboundPorts": "9090"},
	})
	client := s.Deploy(scenario.Workload{Name: "client"})
	s.Expect(client, server, 8080, "inbound server")
	s.Expect(client, server, 9090)
}

// TestExcludedOutbound excludes outbound ports and networks of either family by annotations.
func TestExcludedOutbound(t *testing.T) {
	suite.Long(t)
	t.Parallel()
	s := suite.Begin(t)
	server := s.Deploy(scenario.Workload{Name: "server", Ports: []int{8080, 9090}})
	other := s.Deploy(scenario.Workload{Name: "other", Ports: []int{8080, 9090}})
	var networks []string
	for _, address := range other.Status.PodIPs {
		bits := "/32"
		if strings.Contains(address.IP, ":") {
			bits = "/128"
		}
		networks = append(networks, address.IP+bits)
	}
	client := s.Deploy(scenario.Workload{
		Name: "client", Injected: true,
		Annotations: map[string]string{
			"traffic.sidecar.istio.io/excludeOutboundPorts":    "9090",
			"traffic.sidecar.istio.io/excludeOutboundIPRanges": strings.Join(networks, ","),
		},
	})
	s.Expect(client, server, 8080, "outbound client")
	s.Expect(client, server, 9090)
	s.Expect(client, other, 8080)
	s.Expect(client, other, 9090)
}
