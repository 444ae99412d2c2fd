// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"testing"

	"github.com/meshcni/meshcni/ambient/agent/event"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestAmbientMovesBetweenForms changes the form of capture while pods of the mesh talk: from the
// pods' namespaces to the nodes', and back. The proxies of both forms run on each node. Pods start
// meanwhile. No request on a new connection fails, and nothing of the former form is left.
func TestAmbientMovesBetweenForms(t *testing.T) {
	suite.Long(t)
	a, server, load := beginUnderLoad(t)
	const proxies = "transparent-proxies"
	a.makeNamespace(proxies)
	a.createProxies(proxies, "workload", "transparent")
	pods := []*corev1.Pod{server, load}

	a.changeForm("node", proxies)
	pods = append(pods, a.Pod(scenario.Workload{Name: "during-the-first", Node: a.Bridge.Name}))
	a.awaitForm(inNode, pods...)
	a.expectOnHost(suite.Cluster.Nodes(), "link meshin", "set meshed-v4")
	a.expectCaptured(load, server)
	a.awaitRequests(load)
	a.expectNoFailures(load, newConnections)

	a.changeForm("in-pod", proxies)
	pods = append(pods, a.Pod(scenario.Workload{Name: "during-the-second", Node: a.Bridge.Name}))
	a.awaitForm(inPods, pods...)
	for _, node := range suite.Cluster.Nodes() {
		a.Await("the end of what the node's form has on "+node.Name, func(ctx context.Context) (bool, error) {
			left, err := onHost(ctx, node, wordsOfNodeForm()...)
			return len(left) == 0, err
		})
	}
	a.expectCaptured(load, server)
	a.awaitRequests(load)
	a.expectNoFailures(load, newConnections)
}

// The forms of capture.
const (
	inPods = false
	inNode = true
)

// changeForm changes the form of capture by an upgrade of the release.
func (a *ambientScenario) changeForm(mode, proxies string) {
	a.t.Helper()
	a.Do("change the form to "+mode, func(ctx context.Context) error {
		return a.Install(ctx, scenario.Values{
			"ambient":  scenario.Values{"enabled": true, "mode": mode},
			"settings": scenario.Values{"excludeNamespaces": []any{"kube-system"}, "ambientProxyNamespace": proxies},
		})
	})
}

// awaitForm waits until pods are captured in one form only, and checks that they were not out of
// the mesh by their annotations.
func (a *ambientScenario) awaitForm(byNode bool, pods ...*corev1.Pod) {
	a.t.Helper()
	for _, pod := range pods {
		a.Await("the form of "+pod.Name, func(ctx context.Context) (bool, error) {
			now, err := a.get(ctx, pod)
			if err == nil && now.Annotations[redirection] != "enabled" {
				a.t.Errorf("the annotation of %s is %q", pod.Name, now.Annotations[redirection])
			}
			return (a.Rules(pod) == "") == byNode, err
		})
		node := a.NodeOf(pod)
		a.Await("the agent's word on "+pod.Name, func(context.Context) (bool, error) {
			said, err := a.agent(node, event.Selection{Namespace: pod.Namespace, Name: pod.Name})
			return err == nil && len(said.Pods) == 1 && said.Pods[0].InSets, nil
		})
	}
}

// makeNamespace makes a namespace for the time of the scenario.
func (a *ambientScenario) makeNamespace(name string) {
	a.t.Helper()
	namespaces := a.Cluster.Client.CoreV1().Namespaces()
	a.Cleanup("remove namespace "+name, func(ctx context.Context) error {
		return namespaces.Delete(ctx, name, metav1.DeleteOptions{})
	})
	a.Do("make namespace "+name, func(ctx context.Context) error {
		_, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	})
}
