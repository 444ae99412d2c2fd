// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestOldRuntime runs containerd 1.6 of Debian 12, which supports neither STATUS nor drop-ins. Pods
// of the mesh are captured, and others left alone.
func TestOldRuntime(t *testing.T) {
	suite.Long(t)
	s := suite.Begin(t)
	program, err := exec.LookPath("containerd")
	if err != nil {
		t.Fatalf("%v; run: make e2e, which installs it", err)
	}
	options := s.Node(cluster.BridgeNetwork)
	options.Containerd = filepath.Dir(program)
	node := s.AddNode(options)
	s.AwaitNode(node, true)
	s.Do("look which runtime it is", func(ctx context.Context) error {
		now, err := s.Cluster.Client.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
		if err == nil && !strings.HasPrefix(now.Status.NodeInfo.ContainerRuntimeVersion, "containerd://1.") {
			t.Errorf("%s is %s; have a containerd 1 come first in the PATH", program, now.Status.NodeInfo.ContainerRuntimeVersion)
		}
		return err
	})
	s.Daemon(node)
	old := s.Deploy(scenario.Workload{Name: "old", Injected: true, Node: node.Name})
	plain := s.Deploy(scenario.Workload{Name: "plain", Node: node.Name})
	current := s.Deploy(scenario.Workload{Name: "current", Injected: true, Node: s.Bridge.Name})
	s.Expect(current, old, 8080, "outbound current", "inbound old")
	s.Expect(old, current, 8080, "outbound old", "inbound current")
	s.Expect(old, plain, 8080, "outbound old")
	s.Expect(plain, old, 8080, "inbound old")
	if rules := s.Rules(plain); rules != "" {
		t.Errorf("a pod that wasn't injected has rules:\n%s", rules)
	}
}
