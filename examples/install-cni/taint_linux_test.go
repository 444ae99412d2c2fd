// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"slices"
	"testing"
)

const (
	notReady = `{"effect":"NoSchedule","key":"meshcni.io/not-ready"}`
	cordoned = `{"effect":"NoSchedule","key":"node.kubernetes.io/unschedulable"}`
)

// TestReadinessTaint: the node keeps pods away until the plugin is installed, and never again.
func TestReadinessTaint(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	cluster := clusterFor(t, n)
	cluster.Taint("node-1", notReady, cordoned)
	n.env["READINESS_TAINT"] = "meshcni.io/not-ready"
	p := n.start()
	p.waitAnswer(http.StatusServiceUnavailable, "for the cluster's network plugin")
	if taints := cluster.Taints("node-1"); len(taints) != 2 {
		t.Errorf("taints %v", taints)
	}
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	p.waitLine("took the taint off the node", "taint=meshcni.io/not-ready")
	if taints := cluster.Taints("node-1"); !slices.Equal(taints, []string{cordoned}) {
		t.Errorf("taints %v", taints)
	}
}

// TestReadinessTaintOfANodeThatWasNeverReady is removed by an uninstall, too.
func TestReadinessTaintOfANodeThatWasNeverReady(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	cluster := clusterFor(t, n)
	cluster.Taint("node-1", notReady)
	n.env["READINESS_TAINT"], n.env["UNINSTALL_ON_EXIT"] = "meshcni.io/not-ready", "true"
	p := n.start()
	p.waitAnswer(http.StatusServiceUnavailable, "for the cluster's network plugin")
	p.end()
	if taints := cluster.Taints("node-1"); len(taints) != 0 {
		t.Errorf("taints %v", taints)
	}
}

// TestReadinessTaintMayNotBeTaken: the daemon keeps trying, and the node is ready meanwhile.
func TestReadinessTaintMayNotBeTaken(t *testing.T) {
	t.Parallel()
	n := newReadyNode(t)
	cluster := clusterFor(t, n)
	cluster.Taint("node-1", notReady)
	cluster.Answer(func(r *http.Request) int {
		if r.Method == http.MethodPatch {
			return http.StatusForbidden
		}
		return 0
	})
	n.env["READINESS_TAINT"] = "meshcni.io/not-ready"
	p := n.startReady()
	p.waitLine("part=taint", "may not patch nodes", "kubectl taint nodes node-1 meshcni.io/not-ready-")
	cluster.Answer(nil)
	p.waitLine("took the taint off the node")
	p.waitReady()
}
