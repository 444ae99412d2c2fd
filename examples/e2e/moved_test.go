// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestRunDirectoryMovedAway renames the directory that the daemon has mounted. The daemon's
// container is restarted with the new directory at that path, and a pod that was created meanwhile
// is captured.
func TestRunDirectoryMovedAway(t *testing.T) {
	suite.Long(t)
	s := suite.Begin(t)
	node := s.AddNode(s.Node(cluster.BridgeNetwork))
	s.AwaitNode(node, true)
	before := s.Daemon(node)
	if err := os.Rename(node.Path("/run/istio-cni"), node.Path("/run/istio-cni.old")); err != nil {
		t.Fatal(err)
	}
	server := s.Deploy(scenario.Workload{Name: "server", Injected: true, Node: node.Name})
	client := s.Deploy(scenario.Workload{Name: "client", Node: s.Bridge.Name})
	s.Expect(client, server, 8080, "inbound server")
	s.Await("the daemon's container is started again", func(ctx context.Context) (bool, error) {
		pod, err := s.Cluster.Client.CoreV1().Pods(before.Namespace).Get(ctx, before.Name, metav1.GetOptions{})
		if err != nil || len(pod.Status.ContainerStatuses) == 0 {
			return false, nil //nolint:nilerr // the pod has no status yet
		}
		status := pod.Status.ContainerStatuses[0]
		ended := status.LastTerminationState.Terminated
		return status.Ready && status.RestartCount == 1 && ended != nil && ended.ExitCode == 1, nil
	})
}
