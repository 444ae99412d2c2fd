// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/ambient/agent/event"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestAmbientAPIServerAway stops the API server, and kills a node's daemon meanwhile. Requests go
// on, and rules that another program removes are restored. A pod that its node's agent has heard of
// is enrolled and starts. An agent that starts without the API server goes on with the pods of its
// journal, and restores their rules; pods that are new to it wait. When the API server is back, all
// pods are in the mesh, and leave it with the label.
func TestAmbientAPIServerAway(t *testing.T) {
	suite.Long(t)
	a, _, load := beginUnderLoad(t)
	quiet := map[*cluster.Node]func(...string) (string, error){}
	for _, node := range []*cluster.Node{a.Bridge, a.PointToPoint} {
		pod := a.Pod(scenario.Workload{Name: "quiet-on-" + node.Name, Node: node.Name})
		a.awaitEnrolled(true, pod)
		quiet[node] = a.PodNetwork(pod)
	}
	known := scenario.Workload{Name: "known", Node: a.Bridge.Name}
	unknown := scenario.Workload{Name: "unknown", Node: a.PointToPoint.Name}
	release := map[*cluster.Node]func(){a.Bridge: a.hold(a.Bridge, known), a.PointToPoint: a.hold(a.PointToPoint, unknown)}
	start := stopAPIServer(a.Scenario)
	a.flush(quiet[a.Bridge])
	a.awaitRules(quiet[a.Bridge])
	daemon := &soaked{Node: a.PointToPoint}
	if _, err := a.PointToPoint.Run(t.Context(), "kill", "-KILL", daemon.pid("install-cni")); err != nil { // all of the container
		t.Fatal(err)
	}
	release[a.Bridge]()
	a.awaitServed(a.Bridge, known.Name)
	release[a.PointToPoint]()
	a.awaitWaiting(a.PointToPoint, unknown.Name)
	a.Await("the agent that is started meanwhile", func(context.Context) (bool, error) {
		_, err := a.agent(a.PointToPoint, event.Selection{})
		return err == nil, nil
	})
	a.flush(quiet[a.PointToPoint])
	a.awaitRules(quiet[a.PointToPoint])
	start()

	var later []*corev1.Pod
	for _, w := range []scenario.Workload{known, unknown} {
		pod := a.AwaitPod(w)
		later = append(later, pod)
		a.awaitEnrolled(true, pod)
		a.expectCaptured(load, pod)
	}
	a.awaitRequests(load)
	a.expectNoFailures(load, allConnections)
	a.label(false)
	a.awaitEnrolled(false, later...)
}

// hold makes a pod whose sandbox waits until release is called, because containerd is stopped. It
// returns when the kubelet and the agent know the pod.
func (a *ambientScenario) hold(node *cluster.Node, w scenario.Workload) (release func()) {
	a.t.Helper()
	runtime := (&soaked{Node: node}).pid("containerd")
	signal := func(name string) {
		a.Do(name+" for containerd on "+node.Name, func(ctx context.Context) error {
			_, err := node.Run(ctx, "kill", "-"+name, runtime)
			return err
		})
	}
	signal("STOP")
	a.Cleanup("let containerd go on", func(ctx context.Context) error {
		_, err := node.Run(ctx, "kill", "-CONT", runtime)
		return err
	})
	a.Start(w)
	a.Await("the kubelet to know "+w.Name, func(ctx context.Context) (bool, error) {
		pod, err := a.get(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: w.Name}})
		return err == nil && pod.Status.StartTime != nil, err
	})
	a.Await("the agent to know "+w.Name, func(context.Context) (bool, error) {
		now, err := a.agent(node, event.Selection{Namespace: a.Namespace, Name: w.Name})
		return len(now.Pods) == 1, err
	})
	return func() { signal("CONT") }
}

// flush removes a pod's rules.
func (a *ambientScenario) flush(nft func(arguments ...string) (string, error)) {
	a.t.Helper()
	if _, err := nft("flush", "ruleset"); err != nil {
		a.t.Fatal(err)
	}
}

// awaitRules waits until a pod has rules.
func (a *ambientScenario) awaitRules(nft func(arguments ...string) (string, error)) {
	a.t.Helper()
	a.Await("the rules to be back", func(context.Context) (bool, error) {
		rules, err := nft("list", "ruleset")
		return strings.Contains(rules, "chain"), err
	})
}

// awaitWaiting waits until a node's kubelet has logged that it cannot make a pod's sandbox.
func (a *ambientScenario) awaitWaiting(node *cluster.Node, pod string) {
	a.t.Helper()
	log := filepath.Join(a.Cluster.Logs(), node.Name+"-kubelet.log")
	name := fmt.Sprintf("pod=%q", a.Namespace+"/"+pod)
	a.Await("the kubelet's complaint about "+pod, func(context.Context) (bool, error) {
		text, err := os.ReadFile(log)
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, name) && strings.Contains(line, "istio-cni") {
				a.t.Log(line)
				return true, nil
			}
		}
		return false, err
	})
}
