// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestProbes checks that the kubelet's probes reach an injected pod: through the proxy on a
// captured port, without it on an excluded one.
func TestProbes(t *testing.T) {
	suite.Long(t)
	t.Parallel()
	s := suite.Begin(t)
	probe := func(port int) *corev1.Probe {
		handler := corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt(port)}}
		return &corev1.Probe{ProbeHandler: handler, PeriodSeconds: 1, TimeoutSeconds: 10, FailureThreshold: 10}
	}
	pod := s.Deploy(scenario.Workload{
		Name: "server", Injected: true, Ports: []int{8080, 9090, 9091},
		Annotations: map[string]string{"traffic.sidecar.istio.io/excludeInboundPorts": "9090"},
		Change: func(template *corev1.PodTemplateSpec) {
			application := &template.Spec.Containers[0]
			application.StartupProbe, application.ReadinessProbe = probe(9090), probe(8080)
			tcp := corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt(9091)}}
			application.LivenessProbe = &corev1.Probe{ProbeHandler: tcp, PeriodSeconds: 1, TimeoutSeconds: 10, FailureThreshold: 10}
		},
	})
	text, err := s.Exec(pod, "application", "/workload", "get", "http://127.0.0.1:8080/probes")
	if err != nil {
		t.Fatal(err)
	}
	var seen []scenario.Answer
	if err := json.Unmarshal([]byte(text), &seen); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	for _, via := range [][]string{{}, {"inbound server"}} {
		if !slices.ContainsFunc(seen, func(a scenario.Answer) bool { return slices.Equal(a.Via, via) }) {
			t.Errorf("no probe came via %q; the application has seen %+v", via, seen)
		}
	}
}
