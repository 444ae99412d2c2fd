// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestNativeSidecar checks that a proxy in an init container captures traffic, and that later init
// containers are captured too.
func TestNativeSidecar(t *testing.T) {
	suite.Long(t)
	t.Parallel()
	s := suite.Begin(t)
	server := s.Deploy(scenario.Workload{Name: "server", NativeSidecar: true})
	client := s.Deploy(scenario.Workload{
		Name: "client", NativeSidecar: true,
		Change: func(template *corev1.PodTemplateSpec) {
			early := *template.Spec.Containers[0].DeepCopy()
			early.Name, early.Args, early.ReadinessProbe = "early", append([]string{"get"}, scenario.URLs(server, 8080)...), nil
			template.Spec.InitContainers = append(template.Spec.InitContainers, early)
		},
	})
	s.Expect(client, server, 8080, "outbound client", "inbound server")
	said := s.LogsOf(client, "early")
	if strings.Count(said, `"via":["outbound client","inbound server"]`) != 2 {
		t.Errorf("an init container after the proxy was answered %s", said)
	}
}
