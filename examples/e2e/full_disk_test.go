// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestFullDisk fills a node's directory of CNI configurations before its daemon starts, then makes
// it read-only. The daemon reports each in /readyz and in its log, but no content of a
// configuration. With free space it writes one, becomes ready, and pods are captured.
func TestFullDisk(t *testing.T) {
	suite.Long(t)
	s := suite.Begin(t)
	node := s.AddNode(s.Node(cluster.NoNetwork))
	s.AwaitNode(node, false)
	run := func(command ...string) {
		t.Helper()
		s.Do(strings.Join(command, " "), func(ctx context.Context) error {
			_, err := node.Run(ctx, command...)
			return err
		})
	}
	run("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", "/etc/cni/net.d")
	list, filler := node.Path(listFile), node.Path("/etc/cni/net.d/filler")
	if err := os.WriteFile(list, []byte(node.NetworkConfiguration(cluster.BridgeNetwork)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filler, make([]byte, 64<<10), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the directory isn't full: %v", err)
	}
	// containerd watches the directory below the mount; the node restarts it.
	run("kill", "-KILL", (&soaked{Node: node}).pid("containerd"))

	daemon := startedDaemon(s, node)
	probe := "http://" + net.JoinHostPort(daemon.Status.PodIP, "8000") + "/readyz?verbose"
	says := func(words string) {
		t.Helper()
		s.Await("the daemon to say "+words, func(ctx context.Context) (bool, error) {
			return strings.Contains(readyText(ctx, probe), words), nil
		})
	}
	says("no space left on device")
	// The daemon's container has mounted the file system too.
	run("mount", "-o", "remount,ro", "/etc/cni/net.d")
	says("read-only file system")
	run("mount", "-o", "remount,rw", "/etc/cni/net.d")
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	log := s.LogsOf(s.Daemon(node), "install-cni")
	full, readOnly := strings.Index(log, "no space left on device"), strings.Index(log, "read-only file system")
	if wrote := strings.Index(log, "wrote a CNI configuration"); full < 0 || readOnly < full || wrote < readOnly {
		t.Errorf("the log doesn't say in turn that the directory is full, that it is read-only, and that a configuration is written:\n%s", log)
	}
	client := s.Deploy(scenario.Workload{Name: "client", Node: node.Name})
	s.Expect(client, s.Deploy(scenario.Workload{Name: "server", Injected: true, Node: node.Name}), 8080, "inbound server")
	if names, err := filepath.Glob(filepath.Join(filepath.Dir(list), "*")); err != nil || len(names) != 1 {
		t.Errorf("the failed tries have left something: %q, %v", names, err)
	}
}

// startedDaemon returns the product's pod on a node once it answers probes, even with a failure.
func startedDaemon(s *scenario.Scenario, node *cluster.Node) *corev1.Pod {
	var daemon *corev1.Pod
	s.Await("the start of the daemon on "+node.Name, func(ctx context.Context) (bool, error) {
		pods, err := s.Cluster.Client.CoreV1().Pods(scenario.SystemNamespace).List(ctx, metav1.ListOptions{
			LabelSelector: "k8s-app", FieldSelector: "spec.nodeName=" + node.Name,
		})
		if err != nil || len(pods.Items) != 1 || pods.Items[0].Status.PodIP == "" {
			return false, err
		}
		daemon = &pods.Items[0]
		return readyText(ctx, "http://"+net.JoinHostPort(daemon.Status.PodIP, "8000")+"/readyz") != "", nil
	})
	return daemon
}
