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
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

const (
	// readinessTaint is on nodes until the plugin is installed.
	readinessTaint = "meshcni.io/not-ready"
	// dedicated is an unrelated taint.
	dedicated = "example.com/dedicated"
)

// TestReadinessTaint registers a node with the taint. It takes no pods until the plugin is
// installed and verified; other taints stay. A node whose plugin never becomes ready loses the
// taint at the uninstall.
func TestReadinessTaint(t *testing.T) {
	suite.Long(t)
	s := suite.Begin(t)
	p := &permissions{Scenario: s, t: t}
	p.selectNodes()
	s.Do("install with the taint", func(ctx context.Context) error {
		return s.Install(ctx, scenario.Values{
			"nodeSelector": scenario.Values{selected: "yes"},
			"settings":     scenario.Values{"excludeNamespaces": []any{"kube-system"}, "readinessTaint": readinessTaint},
		})
	})
	late := s.AddNode(tainted(s, cluster.BridgeNetwork))
	never := s.AddNode(tainted(s, cluster.BridgeNetwork))
	s.AwaitNode(late, true)
	s.Await("a node without other taints", func(context.Context) (bool, error) {
		return slices.Equal(taints(s, late), []string{readinessTaint, dedicated}), nil
	})
	w := scenario.Workload{Name: "server", Injected: true, Change: func(template *corev1.PodTemplateSpec) {
		template.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": late.Name}
		template.Spec.Tolerations = []corev1.Toleration{{Key: dedicated, Operator: corev1.TolerationOpExists}}
	}}
	s.Start(w)
	s.Await("the scheduler's words", func(ctx context.Context) (bool, error) {
		pod, err := s.Cluster.Client.CoreV1().Pods(s.Namespace).Get(ctx, w.Name, metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Reason == corev1.PodReasonUnschedulable && strings.Contains(c.Message, "untolerated taint")
		}), err
	})
	s.Do("have a daemon there", func(ctx context.Context) error { return p.label(ctx, late, `"yes"`) })
	server := s.AwaitPod(w)
	if left := taints(s, late); !slices.Equal(left, []string{dedicated}) {
		t.Errorf("%s has the taints %q", late.Name, left)
	}
	s.Expect(s.Pod(scenario.Workload{Name: "client", Node: s.Bridge.Name}), server, 8080, "inbound server")

	s.AwaitNode(never, true)
	// The daemon, as root without capabilities, cannot write either.
	if err := os.Chmod(never.Path("/etc/cni/net.d"), 0o555); err != nil {
		t.Fatal(err)
	}
	s.Do("have a daemon there, too", func(ctx context.Context) error { return p.label(ctx, never, `"yes"`) })
	s.Await("the daemon on "+never.Name, func(ctx context.Context) (bool, error) {
		pods, err := s.Cluster.Client.CoreV1().Pods(scenario.SystemNamespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + never.Name})
		return err == nil && len(pods.Items) == 1 && pods.Items[0].Status.Phase == corev1.PodRunning, err
	})
	if left := taints(s, never); !slices.Contains(left, readinessTaint) {
		t.Errorf("%s isn't ready, and has the taints %q", never.Name, left)
	}
	s.Do("uninstall", func(context.Context) error { return s.Uninstall() })
	if left := taints(s, never); slices.Contains(left, readinessTaint) || !slices.Contains(left, dedicated) {
		t.Errorf("after the uninstall %s has the taints %q", never.Name, left)
	}
}

// tainted returns the options of a node that registers with both taints.
func tainted(s *scenario.Scenario, network cluster.Network) cluster.NodeOptions {
	o := s.Node(network)
	o.Taints = []string{readinessTaint + ":NoSchedule", dedicated + ":NoSchedule"}
	return o
}

func taints(s *scenario.Scenario, node *cluster.Node) []string {
	var keys []string
	s.Do("look at "+node.Name, func(ctx context.Context) error {
		found, err := s.Cluster.Client.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
		for _, one := range found.Spec.Taints {
			keys = append(keys, one.Key)
		}
		return err
	})
	return keys
}
