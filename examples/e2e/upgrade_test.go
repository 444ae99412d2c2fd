// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
	"github.com/meshcni/meshcni/examples/e2e/internal/product"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestRollingUpgrade upgrades the daemon node by node and reverts that by helm rollback, while pods
// start continuously. Each of them is captured, and none fails to start.
func TestRollingUpgrade(t *testing.T) {
	s := suite.Begin(t)
	s.InstallVersion(scenario.FirstVersion) // the rollback's release changes node by node too
	client := s.Deploy(scenario.Workload{Name: "client"})
	s.WhilePodsStart(client, func() { s.InstallVersion(scenario.SecondVersion) })
	expectVersion(s, scenario.SecondVersion)
	s.WhilePodsStart(client, s.RollBack)
	expectVersion(s, scenario.FirstVersion)
}

func expectVersion(s *scenario.Scenario, version string) {
	for _, node := range s.Cluster.Nodes() {
		s.ExpectPluginVersion(node, version)
	}
}

// TestSurgeUpgradeIsRolledBack starts new daemons beside the old ones. They take the nodes over,
// never become ready, and are rolled back. The old daemons, which kept running, take the nodes over
// again and answer the plugin.
func TestSurgeUpgradeIsRolledBack(t *testing.T) {
	suite.Long(t)
	s := suite.Begin(t)
	before := s.Daemon(s.Bridge)
	count := func(words string) int { return strings.Count(s.LogsOf(before, "install-cni"), words) }
	const left, back = "a newer daemon is in charge of this node now", "this one is in charge of the node again"
	lefts, backs := count(left), count(back) // other scenarios had newer daemons too
	s.Do("upgrade to what never gets ready", func(ctx context.Context) error {
		return s.Change(ctx, scenario.Values{
			"image":          product.TestReference("install-cni", scenario.SecondVersion),
			"settings":       scenario.Values{"excludeNamespaces": []any{"kube-system"}, "kubeCaFile": "/missing/ca.crt"},
			"updateStrategy": scenario.Values{"rollingUpdate": scenario.Values{"maxSurge": "100%", "maxUnavailable": 0}},
		})
	})
	s.Await("a newer daemon that keeps the node", func(context.Context) (bool, error) { return count(left) > lefts, nil })
	s.Do("roll back", s.InstallDefault)
	s.Await("the older daemon that keeps it again", func(context.Context) (bool, error) { return count(back) > backs, nil })
	if after := s.Daemon(s.Bridge); after.UID != before.UID {
		t.Errorf("%s was replaced by %s", before.Name, after.Name)
	}
	expectAnswerOfDaemon(s, s.Bridge, "after-rollback")
}

// expectAnswerOfDaemon starts a pod on a node, and checks that the plugin queries the daemon for
// it, at its socket.
func expectAnswerOfDaemon(s *scenario.Scenario, node *cluster.Node, name string) {
	pod, daemon := s.Pod(scenario.Workload{Name: name, Injected: true, Node: node.Name}), s.Daemon(node)
	s.Await("word of "+pod.Name+" in the log of "+daemon.Name, func(context.Context) (bool, error) {
		for line := range strings.Lines(s.LogsOf(daemon, "install-cni")) {
			if strings.Contains(line, "pod="+pod.Namespace+"/"+pod.Name+" ") && strings.Contains(line, "plugin.source=agent") {
				return true, nil
			}
		}
		return false, nil
	})
}
