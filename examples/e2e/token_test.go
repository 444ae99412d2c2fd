// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestTokenRevokedWithAgent makes the API server refuse the daemons' tokens while pods start. The
// node agent knows the pods, so all are captured, and nothing changes on the nodes. Then the
// kubelet renews the token, and the plugin gets it from the same daemon.
func TestTokenRevokedWithAgent(t *testing.T) {
	suite.Long(t)
	s := suite.Begin(t)
	client := s.Deploy(scenario.Workload{Name: "client"})
	before := steady(s)
	s.WhilePodsStart(client, s.RevokeTokens)
	if diff := cmp.Diff(before, steady(s)); diff != "" {
		t.Errorf("without a token the API server takes (-before +after):\n%s", diff)
	}
	for _, node := range s.Cluster.Nodes() {
		s.RenewToken(node)
		pod := s.Deploy(scenario.Workload{Name: "on-" + node.Name, Injected: true, Node: node.Name})
		s.Expect(client, pod, 8080, "inbound on-"+node.Name)
	}
	expectNoRestart(t, s, before)
}

// TestSigningKeyExchanged restarts the API server with another key: it refuses all tokens and has
// ended all watches. The node-watcher is refused, and keeps trying. A known pod that needs a new
// namespace is captured. A new pod waits until the kubelet renews the token, and is then captured
// by the same daemons.
func TestSigningKeyExchanged(t *testing.T) {
	suite.Long(t)
	s := suite.Begin(t)
	node := s.PointToPoint
	client := s.Deploy(scenario.Workload{Name: "client"})
	known := s.Pod(scenario.Workload{Name: "known", Injected: true, Node: node.Name})
	before := steady(s)
	s.ExchangeSigningKey()
	for _, node := range s.Cluster.Nodes() {
		daemon := s.Daemon(node)
		s.Await("the watch of "+daemon.Name+" to be refused", func(context.Context) (bool, error) {
			_, behind, broken := strings.Cut(s.LogsOf(daemon, "install-cni"), "the API server doesn't answer about the node's pods")
			return broken && strings.Contains(behind, "Unauthorized"), nil
		})
	}
	s.Expect(client, s.KillSandbox(known), 8080, "inbound known")
	waiting := scenario.Workload{Name: "waiting", Injected: true, Node: node.Name}
	s.Start(waiting)
	expectRefusal(t, s, waiting.Name)
	if diff := cmp.Diff(before, steady(s)); diff != "" {
		t.Errorf("without a token the API server takes (-before +after):\n%s", diff)
	}
	for _, node := range s.Cluster.Nodes() {
		s.RenewToken(node)
	}
	s.Expect(client, s.AwaitPod(waiting), 8080, "inbound waiting")
	expectNoRestart(t, s, before)
}

// expectNoRestart checks that the daemons are the same as before.
func expectNoRestart(t *testing.T, s *scenario.Scenario, before []state) {
	t.Helper()
	for i, now := range steady(s) {
		if now.daemon != before[i].daemon || now.restarts != before[i].restarts {
			t.Errorf("the daemon of %s was started again", s.Cluster.Nodes()[i].Name)
		}
	}
}

// state is what must not change on a node.
type state struct {
	daemon   string // the pod's UID
	restarts int32
	ready    time.Time
	files    map[string]string
}

// Equal compares for package cmp.
func (a state) Equal(b state) bool {
	return a.daemon == b.daemon && a.restarts == b.restarts && a.ready.Equal(b.ready) && cmp.Equal(a.files, b.files)
}

// steady returns the state of all nodes.
func steady(s *scenario.Scenario) []state {
	var all []state
	for _, node := range s.Cluster.Nodes() {
		daemon := s.Daemon(node)
		now := state{string(daemon.UID), daemon.Status.ContainerStatuses[0].RestartCount, time.Time{}, s.NetworkFiles(node)}
		for _, condition := range daemon.Status.Conditions {
			if condition.Type == corev1.PodReady {
				now.ready = condition.LastTransitionTime.Time
			}
		}
		all = append(all, now)
	}
	return all
}

// TestTokenRevokedWithoutAgent makes the API server refuse the token where no node agent can answer
// for it. A pod of the mesh waits, and reports the reason within the plugin's time limit. A pod
// whose annotations show that it was not injected, and a pod of an excluded namespace, start
// without a request. With a new token the first pod starts captured.
func TestTokenRevokedWithoutAgent(t *testing.T) {
	suite.Long(t)
	s := suite.BeginWith(t, withoutAgent())
	s.RevokeTokens()
	node := s.PointToPoint
	client := s.Pod(scenario.Workload{Name: "client", Node: node.Name})
	if rules := s.Rules(client); rules != "" {
		t.Errorf("a pod that wasn't injected has rules:\n%s", rules)
	}
	s.Delete(s.Pod(scenario.Workload{Name: "excluded", Namespace: "kube-system", Injected: true, Node: node.Name}))
	waiting := scenario.Workload{Name: "waiting", Injected: true, Node: node.Name}
	s.Start(waiting)
	expectRefusal(t, s, waiting.Name)
	expectInquiries(t, s, waiting.Name)
	if files := s.NetworkFiles(node); !strings.Contains(files[cluster.FileName], "istio-cni") {
		t.Errorf("%s has no plugin any more:\n%s", node.Name, files[cluster.FileName])
	}
	s.RenewToken(node)
	s.Expect(client, s.AwaitPod(waiting), 8080, "inbound waiting")
}

// expectInquiries checks that the plugin requested this pod of the scenario, and no other, from the
// API server.
func expectInquiries(t *testing.T, s *scenario.Scenario, name string) {
	t.Helper()
	all, err := s.Cluster.Inquiries()
	if err != nil {
		t.Fatal(err)
	}
	asked := false
	for _, i := range all {
		switch {
		case i.UserAgent != "meshcni":
		case i.Pod.Namespace == s.Namespace && i.Pod.Name == name:
			asked = true
		case i.Pod.Namespace == s.Namespace || i.Pod.Namespace == "kube-system":
			t.Errorf("the API server was asked for pod %s/%s, which nobody has to know", i.Pod.Namespace, i.Pod.Name)
		}
	}
	if !asked {
		t.Errorf("the API server was not asked for pod %s", name)
	}
}

// withoutAgent makes the plugin query the API server.
func withoutAgent() scenario.Values { return scenario.Values{"watchPods": false} }

// expectRefusal waits until the kubelet reports that the API server refused the plugin, which must
// be within the plugin's own time limit.
func expectRefusal(t *testing.T, s *scenario.Scenario, name string) {
	t.Helper()
	const most = 30 * time.Second // the default timeout
	s.Await("an event that says why", func(ctx context.Context) (bool, error) {
		selector := metav1.ListOptions{FieldSelector: "reason=FailedCreatePodSandBox,involvedObject.name=" + name}
		events, err := s.Cluster.Client.CoreV1().Events(s.Namespace).List(ctx, selector)
		if err != nil || len(events.Items) == 0 {
			return false, err
		}
		pod, err := s.Cluster.Client.CoreV1().Pods(s.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		first := events.Items[0]
		if !strings.Contains(first.Message, "does not accept the credential") {
			t.Errorf("the event doesn't say what the API server said: %s", first.Message)
		}
		if took := first.FirstTimestamp.Sub(pod.CreationTimestamp.Time); took > most {
			t.Errorf("the plugin took %v to say it", took)
		}
		return true, nil
	})
}
