// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
	"github.com/meshcni/meshcni/examples/e2e/internal/product"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestUninstallByHand deletes daemons that are configured not to uninstall, so the plugin stays.
// Once the API server has refused its token for long enough, the plugin's error contains the
// command to run on the node. The manual's command for containerd's client removes the plugin from
// the nodes.
func TestUninstallByHand(t *testing.T) {
	suite.Long(t)
	s := suite.BeginWith(t, scenario.Values{
		"settings": scenario.Values{"excludeNamespaces": []any{"kube-system"}, "uninstallOnDeletion": false, "abandonedAfter": "1s"},
	})
	client := s.Deploy(scenario.Workload{Name: "client"})
	before := s.Deploy(scenario.Workload{Name: "before", Injected: true})
	s.Do("uninstall", func(context.Context) error { return s.Uninstall() })
	refused := scenario.Workload{Name: "refused", Injected: true, Node: s.Bridge.Name}
	s.Start(refused)
	awaitRefusal(s, refused.Name, "run install-cni uninstall on this node")
	for _, node := range s.Cluster.Nodes() {
		if !strings.Contains(s.NetworkFiles(node)[cluster.FileName], `"istio-cni"`) {
			t.Fatalf("the plugin isn't on %s any more", node.Name)
		}
		s.Do("follow the manual on "+node.Name, func(ctx context.Context) error {
			said, err := node.Run(ctx, byHand(t)...)
			t.Logf("%s: %s", node.Name, said)
			return err
		})
	}
	expectGone(t, s, client, before)
}

// awaitRefusal waits until the kubelet reports that a pod's sandbox failed, for this reason.
func awaitRefusal(s *scenario.Scenario, pod, reason string) {
	s.Await("an event of "+pod+" that says: "+reason, func(ctx context.Context) (bool, error) {
		events, err := s.Cluster.Client.CoreV1().Events(s.Namespace).List(ctx, metav1.ListOptions{
			FieldSelector: "reason=FailedCreatePodSandBox,involvedObject.name=" + pod,
		})
		if err != nil {
			return false, err
		}
		return slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return strings.Contains(e.Message, reason) }), nil
	})
}

// byHand returns the manual's command line to uninstall on a node without a daemon, for the tests'
// image.
func byHand(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(text), "\n```shell\nctr ")
	block, _, found := strings.Cut(block, "\n```")
	const image = " ghcr.io/meshcni/install-cni:0.1.0 "
	if !found || strings.Count(block, image) != 1 {
		t.Fatalf("the manual has no such command with the image: %s", block)
	}
	line := strings.Replace(strings.ReplaceAll(block, "\\\n", ""), image, " "+product.TestReference("install-cni", scenario.FirstVersion)+" ", 1)
	return append([]string{"ctr"}, strings.Fields(line)...)
}
