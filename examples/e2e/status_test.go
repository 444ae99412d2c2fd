// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestStatus checks STATUS, which containerd calls if the network's configuration has CNI version
// 1.1.0. If the plugin can reach neither the API server nor an agent, the node is not ready, and
// its condition has the plugin's error until the API server answers. If the API server refuses the
// token, the node stays ready, since the kubelet renews no tokens on an unready node: pods of the
// mesh wait, others start. When the kubelet renews the token, through the same daemon, the waiting
// pods start captured.
func TestStatus(t *testing.T) {
	suite.Long(t)
	s := suite.BeginWith(t, withoutAgent())
	node := nodeThatAsks(t, s)
	before := s.Daemon(node)
	restore := s.CutOff(node)
	notReadyLately(t, node)
	s.Await("the plugin's words in the node's condition", func(ctx context.Context) (bool, error) {
		said, err := readiness(ctx, s, node)
		return strings.Contains(said.Message, "NetworkReady=false") && strings.Contains(said.Message, "cannot be reached") &&
			said.Status == corev1.ConditionFalse, err
	})
	restore()
	s.AwaitNode(node, true)

	s.RevokeTokens()
	notReadyLately(t, node)
	s.Await("a STATUS that meets a refused token", func(context.Context) (bool, error) {
		text := s.LogsOf(before, "install-cni")
		return strings.Contains(text, "it is not reported") && strings.Contains(text, "does not accept the credential"), nil
	})
	waiting := scenario.Workload{Name: "waiting", Injected: true, Node: node.Name}
	s.Start(waiting)
	expectRefusal(t, s, waiting.Name)
	client := s.Pod(scenario.Workload{Name: "client", Node: node.Name})
	s.RenewToken(node)
	s.Expect(client, s.AwaitPod(waiting), 8080, "inbound waiting")
	if after := s.Daemon(node); after.UID != before.UID || after.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("%s was started again, or replaced by %s", before.Name, after.Name)
	}
}

// nodeThatAsks adds a node on which the runtime calls STATUS, and waits until the plugin, which has
// no node agent, was ready.
func nodeThatAsks(t *testing.T, s *scenario.Scenario) *cluster.Node {
	t.Helper()
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
	s.Await("the first STATUS", func(context.Context) (bool, error) {
		_, err := os.Stat(node.Path(readyMark))
		return err == nil, nil
	})
	return node
}

// readyMark is the file in which the plugin records when it was ready.
const readyMark = "/run/istio-cni/istio-cni.ready"

// notReadyLately makes the plugin query the API server at the next STATUS, which it otherwise does
// half a minute after the last answer.
func notReadyLately(t *testing.T, node *cluster.Node) {
	t.Helper()
	ago := time.Now().Add(-time.Minute)
	if err := os.Chtimes(node.Path(readyMark), ago, ago); err != nil {
		t.Fatal(err)
	}
}

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
