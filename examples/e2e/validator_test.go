// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/meshcni/meshcni/examples/e2e/internal/product"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// The proxy's user proves that calls to the pod itself reach the proxy; other users prove that
// outbound traffic does.
const (
	nobody    = 65534
	proxyUser = 1337
)

// meshValidator returns an init container with mesh-validator, as its README shows it.
func meshValidator(name string, user int64, arguments ...string) corev1.Container {
	return corev1.Container{
		Name: name, Image: product.TestReference("install-cni", scenario.FirstVersion), ImagePullPolicy: corev1.PullNever,
		Command: append([]string{"mesh-validator"}, arguments...),
		SecurityContext: &corev1.SecurityContext{
			RunAsUser: &user, RunAsGroup: &user, RunAsNonRoot: new(true), AllowPrivilegeEscalation: new(bool), ReadOnlyRootFilesystem: new(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
}

// withValidators returns a pod with these init containers.
func withValidators(name string, validators ...corev1.Container) scenario.Workload {
	return scenario.Workload{Name: name, Injected: true, Change: func(template *corev1.PodTemplateSpec) {
		template.Spec.InitContainers = validators
	}}
}

// sidecarValidator returns a native sidecar that proves both directions, inbound by its own startup
// probe.
func sidecarValidator() corev1.Container {
	c := meshValidator("mesh-validator", nobody, "-probe-port", "15019", "-stay")
	c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	c.StartupProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(15019)}},
		PeriodSeconds: 1, FailureThreshold: 30,
	}
	return c
}

// TestValidator checks that mesh-validator finds captured pods captured, in both directions and
// families.
func TestValidator(t *testing.T) {
	suite.Long(t)
	t.Parallel()
	s := suite.Begin(t)
	both := withValidators("both", meshValidator("mesh-validator", nobody), meshValidator("mesh-validator-inbound", proxyUser, "-check", "self"))
	sidecar := withValidators("sidecar", sidecarValidator())
	both.Node, sidecar.Node = s.Bridge.Name, s.PointToPoint.Name
	s.Start(both)
	s.Start(sidecar)
	pod := s.AwaitPod(both)
	if len(pod.Status.PodIPs) != 2 {
		t.Fatalf("the pod has the addresses %v", pod.Status.PodIPs)
	}
	wantSaid(t, s.LogsOf(pod, "mesh-validator"), "captured outbound ipv4 (outbound): ", "captured outbound ipv6 (outbound): ")
	wantSaid(t, s.LogsOf(pod, "mesh-validator-inbound"), "captured inbound ipv4 (self): ", "captured inbound ipv6 (self): ")
	wantSaid(t, s.LogsOf(s.AwaitPod(sidecar), "mesh-validator"), "captured outbound ipv4 (outbound): ", "captured outbound ipv6 (outbound): ",
		"captured inbound (probe): a probe from ")
}

// wantSaid checks that the lines have these prefixes, and that there are no others.
func wantSaid(t *testing.T, said string, lines ...string) {
	t.Helper()
	got := strings.Split(strings.TrimSpace(said), "\n")
	for _, line := range lines {
		if !strings.Contains("\n"+said, "\n"+line) {
			t.Errorf("it doesn't say %q:\n%s", line, said)
		}
	}
	if len(got) != len(lines) {
		t.Errorf("it says %d lines:\n%s", len(got), said)
	}
}

// TestValidatorAndRepair starts pods while the plugin is not in the network. They stop at
// mesh-validator, which exits with 126 and names the direction that is not captured. Once the
// product is installed, it applies the rules, and they continue. A pod without a validator is
// detected when the daemon starts: it is reported first.
func TestValidatorAndRepair(t *testing.T) {
	suite.Long(t)
	s := suite.Begin(t)
	s.Do("uninstall", func(context.Context) error { return s.Uninstall() })
	const quick = "-timeout=4s" // for failing checks
	pods := map[string]struct {
		workload scenario.Workload
		says     []string
	}{
		"outbound": {withValidators("outbound", meshValidator("mesh-validator", nobody, quick)), []string{"outbound ipv4 (outbound)", "outbound ipv6 (outbound)"}},
		"inbound": {
			withValidators("inbound", meshValidator("mesh-validator", proxyUser, "-check", "self", quick)), []string{"inbound ipv4 (self)", "inbound ipv6 (self)"},
		},
	}
	for _, test := range pods {
		s.Start(test.workload)
	}
	silent := s.Pod(scenario.Workload{Name: "silent", Injected: true})
	for name, test := range pods {
		ended := awaitNotCaptured(s, name)
		for _, says := range test.says {
			if !strings.Contains(ended.Message, says) {
				t.Errorf("%s: the message doesn't say %q: %s", name, says, ended.Message)
			}
		}
	}
	s.Do("install with repair", func(ctx context.Context) error {
		return s.Install(ctx, scenario.Values{"repairInPlace": true, "settings": scenario.Values{
			"excludeNamespaces": []any{"kube-system"}, "repairInitContainerName": "mesh-validator", "repairResync": "10s",
		}})
	})
	said := awaitEvent(s, silent.Name, "BrokenPod")
	if !strings.Contains(said, "nothing is recorded of the pod") || !strings.Contains(said, "not repair: it was there when this started") {
		t.Errorf("the report doesn't say by what it judges, and why nothing is done: %s", said)
	}
	awaitEvent(s, silent.Name, "RepairBrokenPod")
	if s.Rules(silent) == "" {
		t.Error("the pod without a validator has no rules")
	}
	for name, test := range pods {
		awaitEvent(s, name, "RepairBrokenPod")
		pod := s.AwaitPod(test.workload)
		if s.Rules(pod) == "" {
			t.Errorf("%s has no rules", name)
		}
	}
}

// awaitNotCaptured waits until a pod's validator has reported that, and returns the state of its
// end.
func awaitNotCaptured(s *scenario.Scenario, name string) *corev1.ContainerStateTerminated {
	var ended *corev1.ContainerStateTerminated
	s.Await("the validator of "+name, func(ctx context.Context) (bool, error) {
		pod, err := s.Cluster.Client.CoreV1().Pods(s.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil || len(pod.Status.InitContainerStatuses) == 0 {
			return false, err
		}
		status := pod.Status.InitContainerStatuses[0]
		for _, state := range []corev1.ContainerState{status.State, status.LastTerminationState} {
			if state.Terminated != nil && state.Terminated.ExitCode == 126 {
				ended = state.Terminated
			}
		}
		return ended != nil, nil
	})
	return ended
}
