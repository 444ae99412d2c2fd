// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestStatus: containerd asks the plugin for its STATUS where the network's configuration is of CNI 1.1.0. When nobody can tell about
// pods, the node isn't ready, and says what the plugin says; when the daemon is started again, with a token that is taken, it is, and
// pods are captured. (On a node that isn't ready the kubelet renews no tokens of pods that run.)
func TestStatus(t *testing.T) {
	suite.Long(t)
	s := suite.Begin(t)
	node := s.AddNode(s.Node(cluster.NoNetwork))
	s.AwaitNode(node, false)
	list := node.NetworkConfiguration(cluster.BridgeNetwork)
	newer := strings.Replace(list, `"cniVersion": "1.0.0"`, `"cniVersion": "1.1.0"`, 1)
	if newer == list {
		t.Fatalf("the network's configuration is of another version:\n%s", list)
	}
	if err := os.WriteFile(filepath.Join(node.Path("/etc/cni/net.d"), cluster.FileName), []byte(newer), 0o600); err != nil {
		t.Fatal(err)
	}
	s.AwaitNode(node, true)
	withoutAgent(s)
	s.Await("the first STATUS", func(context.Context) (bool, error) {
		_, err := os.Stat(node.Path("/run/istio-cni/istio-cni.ready"))
		return err == nil, nil
	})
	daemon := s.Daemon(node)
	s.RevokeTokens()
	s.Await("the plugin's words in the node's condition", func(ctx context.Context) (bool, error) {
		said, err := readiness(ctx, s, node)
		return strings.Contains(said.Message, "NetworkReady=false") && strings.Contains(said.Message, "does not accept the credential") &&
			said.Status == corev1.ConditionFalse, err
	})
	s.Delete(daemon)
	s.AwaitNode(node, true)
	s.Daemon(node)
	server := s.Pod(scenario.Workload{Name: "server", Injected: true, Node: node.Name})
	client := s.Pod(scenario.Workload{Name: "client", Node: node.Name})
	s.Expect(client, server, 8080, "inbound server")
}

// readiness is a node's condition Ready.
func readiness(ctx context.Context, s *scenario.Scenario, node *cluster.Node) (corev1.NodeCondition, error) {
	of, err := s.Cluster.Client.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
	if err != nil {
		return corev1.NodeCondition{}, err
	}
	for _, condition := range of.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition, nil
		}
	}
	return corev1.NodeCondition{}, nil
}
