// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
)

// AddNode adds a node to the cluster for this scenario only. It does not wait until the node is
// ready.
func (s *Scenario) AddNode(o cluster.NodeOptions) *cluster.Node {
	s.t.Helper()
	node, err := s.Cluster.AddNode(o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), most)
		defer cancel()
		if err := s.Cluster.RemoveNode(ctx, node); err != nil {
			s.t.Error(err)
		}
	})
	return node
}

// AwaitNode waits until a node is ready or, with false, no longer ready.
func (s *Scenario) AwaitNode(node *cluster.Node, ready bool) {
	s.t.Helper()
	s.Do("wait for "+node.Name, func(ctx context.Context) error { return s.Cluster.AwaitReady(ctx, node, ready) })
}

// CutOff prevents a node's own processes from opening connections to the API server until the
// caller calls restore. Open connections, including the kubelet's, and pods' connections continue
// to work.
func (s *Scenario) CutOff(node *cluster.Node) (restore func()) {
	s.t.Helper()
	const cut = `add table inet cut
add chain inet cut output { type filter hook output priority 0; }
add rule inet cut output tcp dport { 443, 6443 } tcp flags & (syn | ack) == syn reject with tcp reset`
	nft := func(what, script string) {
		s.Do(what, func(ctx context.Context) error {
			_, err := node.Run(ctx, "nft", script)
			return err
		})
	}
	nft("cut "+node.Name+" off", cut)
	return func() { nft("connect "+node.Name+" again", "delete table inet cut") }
}

// NodeOf returns the node of a pod.
func (s *Scenario) NodeOf(pod *corev1.Pod) *cluster.Node {
	s.t.Helper()
	nodes := s.Cluster.Nodes()
	index := slices.IndexFunc(nodes, func(n *cluster.Node) bool { return n.Name == pod.Spec.NodeName })
	if index < 0 {
		s.t.Fatalf("pod %s is on no node of the cluster: %q", pod.Name, pod.Spec.NodeName)
	}
	return nodes[index]
}

// NetworkFiles returns the current CNI configurations of a node, by name.
func (s *Scenario) NetworkFiles(node *cluster.Node) map[string]string {
	s.t.Helper()
	directory := node.Path("/etc/cni/net.d")
	entries, err := os.ReadDir(directory)
	if err != nil {
		s.t.Fatal(err)
	}
	files := map[string]string{}
	for _, entry := range entries {
		if entry.IsDir() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(directory, entry.Name()))
		if err != nil {
			s.t.Fatal(err)
		}
		files[entry.Name()] = string(text)
	}
	return files
}

// Daemons returns the product's pods on all nodes, once they are ready.
func (s *Scenario) Daemons() []*corev1.Pod {
	s.t.Helper()
	var daemons []*corev1.Pod
	for _, node := range s.Cluster.Nodes() {
		daemons = append(daemons, s.Daemon(node))
	}
	return daemons
}

// Daemon returns the product's pod on a node, once it is ready.
func (s *Scenario) Daemon(node *cluster.Node) *corev1.Pod {
	s.t.Helper()
	var daemon *corev1.Pod
	s.Await("the daemon on "+node.Name, func(ctx context.Context) (bool, error) {
		pods, err := s.client().CoreV1().Pods(SystemNamespace).List(ctx, metav1.ListOptions{
			LabelSelector: "k8s-app", FieldSelector: "spec.nodeName=" + node.Name,
		})
		if err != nil {
			return false, nil //nolint:nilerr // the API server may be away
		}
		index := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp == nil && Ready(&p) })
		if index >= 0 {
			daemon = &pods.Items[index]
		}
		return index >= 0, nil
	})
	return daemon
}
