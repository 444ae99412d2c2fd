// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"slices"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/examples/install-cni/internal/ambientpart"
	"github.com/meshcni/meshcni/examples/install-cni/internal/health"
	"github.com/meshcni/meshcni/examples/internal/ambientnews"
)

func TestAmbient(t *testing.T) {
	t.Parallel()
	m := newMetrics(t, health.NewState())
	var state *ambientpart.State
	a := m.Ambient(func() *ambientpart.State { return state })
	want(t, m, "ztunnel_connected", "ztunnel_connected 0")
	want(t, m, "meshcni_ambient_pods")
	state = &ambientpart.State{StandsBy: true}
	want(t, m, "ztunnel_connected")
	want(t, m, "meshcni_ambient_pods")
	state = &ambientpart.State{
		Node: ambientnews.Node{Complete: true, Proxies: 2}, Pods: map[ambientpart.Kind]int{ambientpart.Enrolled: 3, ambientpart.Failed: 1},
		Steps: map[string]int{string(ambient.StepTell): 1, "": 1, "a step of a later version": 1},
	}
	want(t, m, "ztunnel_connected", "ztunnel_connected 2")
	want(t, m, "meshcni_ambient_complete", "meshcni_ambient_complete 1")
	want(t, m, "meshcni_ambient_host_right", "meshcni_ambient_host_right 1")
	state.Node.Host = "no vxlan"
	want(t, m, "meshcni_ambient_host_right", "meshcni_ambient_host_right 0")
	want(t, m, "meshcni_ambient_pods{", `meshcni_ambient_pods{state="enrolled"} 3`, `meshcni_ambient_pods{state="enrolling"} 0`,
		`meshcni_ambient_pods{state="failed"} 1`, `meshcni_ambient_pods{state="leaving"} 0`, `meshcni_ambient_pods{state="pending"} 0`)
	for range 2 {
		a.Request(ambientnews.Request{Status: 200, Captured: true, Seconds: 0.03})
	}
	a.Request(ambientnews.Request{Status: 200, Seconds: 9}) // is not captured
	a.Request(ambientnews.Request{Status: 418})
	want(t, m, "istio_cni_plugin_requests_total", `istio_cni_plugin_requests_total{response_code="200"} 3`,
		`istio_cni_plugin_requests_total{response_code="400"} 0`, `istio_cni_plugin_requests_total{response_code="500"} 0`,
		`istio_cni_plugin_requests_total{response_code="other"} 1`)
	a.Count(ambientnews.Count{What: "enrolled", Of: "feed", Times: 1, Seconds: 0.2})
	want(t, m, "meshcni_ambient_enrol_duration_seconds_count", `meshcni_ambient_enrol_duration_seconds_count{source="feed"} 1`,
		`meshcni_ambient_enrol_duration_seconds_count{source="plugin"} 2`)
	a.Failed(string(ambient.StepTell))
	a.Failed("")
	a.Failed("a step of a later version")
	got := scrape(t, m, "meshcni_ambient_failures_total")
	for _, line := range []string{`meshcni_ambient_failures_total{step="tell"} 1`, `meshcni_ambient_failures_total{step="other"} 2`} {
		if !slices.Contains(got, line) {
			t.Errorf("no %s in\n%s", line, strings.Join(got, "\n"))
		}
	}
	at := scrape(t, m, "meshcni_ambient_pods_at_step")
	for _, line := range []string{`meshcni_ambient_pods_at_step{step="tell"} 1`, `meshcni_ambient_pods_at_step{step="other"} 2`} {
		if !slices.Contains(at, line) || len(at) != len(stepLabels())+1 {
			t.Errorf("no %s in\n%s", line, strings.Join(at, "\n"))
		}
	}
}

// TestAmbientCounts counts each kind, with words of a later version.
func TestAmbientCounts(t *testing.T) {
	t.Parallel()
	m := newMetrics(t, health.NewState())
	a := m.Ambient(func() *ambientpart.State { return nil })
	for _, c := range []ambientnews.Count{
		{What: "change", Of: "add", Times: 3},
		{What: "change", Of: "update", Times: 1},
		{What: "drift", Of: "rules", Times: 2},
		{What: "healed", Of: "rules", Times: 1},
		{What: "drift", Of: "what a later version has", Times: 1},
		{What: "edit", Of: "remove", Times: 4},
		{What: ambientnews.Ack, Of: "add", Times: 1},
		{What: ambientnews.Nack, Of: "add", Times: 1},
		{What: "unknown", Of: "add", Times: 1},
		{What: "edit", Of: "add", Times: -1},
	} {
		a.Count(c)
	}
	want(t, m, "nodeagent_reconcile_events_total", `nodeagent_reconcile_events_total{type="add"} 3`, `nodeagent_reconcile_events_total{type="delete"} 0`,
		`nodeagent_reconcile_events_total{type="update"} 1`)
	want(t, m, "meshcni_ambient_drift_found_total", `meshcni_ambient_drift_found_total{part="host"} 0`,
		`meshcni_ambient_drift_found_total{part="listeners"} 0`, `meshcni_ambient_drift_found_total{part="other"} 1`,
		`meshcni_ambient_drift_found_total{part="rules"} 2`, `meshcni_ambient_drift_found_total{part="sets"} 0`)
	want(t, m, `meshcni_ambient_drift_healed_total{part="rules"}`, `meshcni_ambient_drift_healed_total{part="rules"} 1`)
	want(t, m, "meshcni_ambient_set_edits_total", `meshcni_ambient_set_edits_total{operation="add"} 0`,
		`meshcni_ambient_set_edits_total{operation="remove"} 4`)
	want(t, m, `meshcni_ambient_proxy_answers_total{answer="ack"`, `meshcni_ambient_proxy_answers_total{answer="ack",request="add"} 1`,
		`meshcni_ambient_proxy_answers_total{answer="ack",request="del"} 0`, `meshcni_ambient_proxy_answers_total{answer="ack",request="keep"} 0`,
		`meshcni_ambient_proxy_answers_total{answer="ack",request="snapshot sent"} 0`)
	want(t, m, `meshcni_ambient_proxy_answers_total{answer="nack",request="add"}`, `meshcni_ambient_proxy_answers_total{answer="nack",request="add"} 1`)
}

// TestEachStepHasALabel: Next takes no step that the metrics do not know.
func TestEachStepHasALabel(t *testing.T) {
	t.Parallel()
	bits := func(i, n int) bool { return i>>n&1 == 1 }
	holds := []ambient.Step{"", ambient.StepAwaitTurn, ambient.StepPrepare, ambient.StepAwaitDrained}
	for i := range len(holds) << 6 {
		for rules := ambient.NoRules; rules <= ambient.DrainingRules; rules++ {
			for proxy := ambient.ProxyUntold; proxy <= ambient.ProxyLost; proxy++ {
				for _, status := range []ambient.Status{ambient.NoStatus, ambient.StatusPending, ambient.StatusEnabled} {
					wanted := ambient.Wanted{Enrolled: bits(i, 0), Closed: bits(i, 1), Gone: bits(i, 2), Held: holds[i>>6]}
					seen := ambient.Seen{Open: bits(i, 3), Rules: rules, Proxy: proxy, Drained: bits(i, 4), InSets: bits(i, 5), Status: status}
					for _, step := range ambient.Next(wanted, seen) {
						if !slices.Contains(stepLabels(), string(step)) {
							t.Fatalf("no label for step %q", step)
						}
					}
				}
			}
		}
	}
}
