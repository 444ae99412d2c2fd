// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/meshcni/meshcni/ambient/agent/event"
	corev1 "k8s.io/api/core/v1"

	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestAmbientOnNode has the nodes capture their pods, for transparent proxies in pods of their own.
// A namespace gets the label while its pods talk, the proxies are rolled out anew under load, and
// the product is uninstalled under load. No request on a new connection fails, no pod has rules in
// its namespace, and the nodes' namespaces are as they were before.
func TestAmbientOnNode(t *testing.T) {
	suite.Long(t)
	a := &ambientScenario{suite.BeginWith(t, scenario.Values{"ambient": scenario.Values{"enabled": true}}), t}
	a.Do("uninstall, to begin with nodes as they were", func(context.Context) error { return a.Uninstall() })
	a.Do("install with the other form", func(ctx context.Context) error {
		return a.Install(ctx, scenario.Values{"ambient": scenario.Values{"enabled": true, "mode": "node"}})
	})
	nodes := []*cluster.Node{a.Bridge, a.PointToPoint}
	server := a.Pod(scenario.Workload{Name: "server", Node: a.Bridge.Name})
	load := a.load(server)
	a.awaitRequests(load)
	a.expectNotCaptured(load, server)
	a.createProxies(scenario.SystemNamespace, "workload", "transparent")

	a.label(true)
	a.awaitCapturedByNode(true, server, load)
	a.expectCaptured(load, server)
	a.expectOnHost(nodes, "link meshin", "set meshed-v4")
	fresh := a.Pod(scenario.Workload{Name: "fresh", Node: a.Bridge.Name})
	a.awaitCapturedByNode(true, fresh)
	a.expectCaptured(load, fresh)

	a.restart("ztunnel")
	a.awaitRequests(load)
	a.expectCaptured(load, server)
	a.expectNoFailures(load, newConnections)

	a.Do("uninstall", func(context.Context) error { return a.UninstallRelease(scenario.ReleaseName) })
	expectNodesAsBefore(t, a.Scenario)
	a.awaitCapturedByNode(false, server, load, fresh)
	a.awaitRequests(load)
	a.expectNotCaptured(load, server)
	a.expectNoFailures(load, newConnections)
	a.expectNothingOnHost(nodes)
}

// awaitCapturedByNode waits until the pods' annotations say that they are in the mesh, or that they
// are not. Of those that are, the node's agent says that it has their addresses in the sets, and
// that the proxy serves. None has rules in its own namespace.
func (a *ambientScenario) awaitCapturedByNode(captured bool, pods ...*corev1.Pod) {
	a.t.Helper()
	for _, pod := range pods {
		a.Await("the annotation of "+pod.Name, func(ctx context.Context) (bool, error) {
			now, err := a.get(ctx, pod)
			return err == nil && (now.Annotations[redirection] == "enabled") == captured, err
		})
		if rules := a.Rules(pod); rules != "" {
			a.t.Errorf("%s has rules in its own namespace:\n%s", pod.Name, rules)
		}
		if !captured {
			continue
		}
		node, err := a.agent(a.NodeOf(pod), event.Selection{Namespace: pod.Namespace, Name: pod.Name})
		if err != nil || len(node.Pods) != 1 || !node.Pods[0].InSets {
			a.t.Errorf("the agent says of %s: %+v, %v", pod.Name, node.Pods, err)
		}
	}
}

// expectOnHost checks that the daemon lists what ambient mode has in the nodes' namespaces.
func (a *ambientScenario) expectOnHost(nodes []*cluster.Node, wants ...string) {
	a.t.Helper()
	for _, node := range nodes {
		said, err := a.Exec(a.Daemon(node), "install-cni", "install-cni", "ambient", "status", "--host")
		for _, want := range wants {
			if err != nil || !strings.Contains(said, want) {
				a.t.Errorf("status --host on %s lacks %q: %v\n%s", node.Name, want, err, said)
			}
		}
	}
}

// expectNothingOnHost checks that the nodes' namespaces have nothing of the mesh.
func (a *ambientScenario) expectNothingOnHost(nodes []*cluster.Node) {
	a.t.Helper()
	for _, node := range nodes {
		left, err := onHost(a.t.Context(), node, append(wordsOfNodeForm(), "istio", "meshcni")...)
		if err != nil {
			a.t.Fatal(err)
		}
		if diff := cmp.Diff([]string(nil), left); diff != "" {
			a.t.Errorf("left on %s (-want +got):\n%s", node.Name, diff)
		}
	}
}

// wordsOfNodeForm are in what the node's form of capture has in the node's namespace, and in
// nothing else there.
func wordsOfNodeForm() []string {
	return []string{"meshin", "meshout", "meshed-v", "fwmark 0x1/"}
}

// onHost returns what a node's namespace has with one of the words in it: rules, links, policy
// rules and routes.
func onHost(ctx context.Context, node *cluster.Node, words ...string) (all []string, err error) {
	for _, command := range []string{"nft list ruleset", "ip link", "ip rule", "ip -6 rule", "ip route show table all", "ip -6 route show table all"} {
		said, err := node.Run(ctx, strings.Fields(command)...)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(said) {
			if slices.ContainsFunc(words, func(word string) bool { return strings.Contains(line, word) }) {
				all = append(all, command+": "+strings.TrimSpace(line))
			}
		}
	}
	return all, nil
}
