// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPodMonitorNamesTheNode checks that metrics get the label by which alerts and dashboard tell
// nodes apart.
func TestPodMonitorNamesTheNode(t *testing.T) {
	t.Parallel()
	spec, _ := find(t, render(t, "podMonitor: {enabled: true}"), "PodMonitor").Content["spec"].(map[string]any)
	want := []any{map[string]any{
		"port": "metrics", "path": "/metrics",
		"relabelings": []any{map[string]any{"sourceLabels": []any{"__meta_kubernetes_pod_node_name"}, "targetLabel": "node"}},
	}}
	if diff := cmp.Diff(want, spec["podMetricsEndpoints"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
