// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/meshcni/meshcni/conflist/installer"
	"github.com/meshcni/meshcni/examples/install-cni/internal/ambientpart"
	"github.com/meshcni/meshcni/examples/install-cni/internal/health"
	"github.com/meshcni/meshcni/examples/internal/ambientnews"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/repair"
)

// monitoring is the directory of the files for Prometheus and Grafana.
const monitoring = "../../../charts/meshcni/monitoring"

// exported returns every metric that is served, with its labels.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	m := newMetrics(t, health.NewState("config"))
	m.Request("pod", "ok")
	m.Restored("cilium-cni")
	ambientMode := m.Ambient(func() *ambientpart.State { return &ambientpart.State{} })
	ambientMode.Request(ambientnews.Request{Status: 200, Captured: true})
	m.Result(podsource.Result{Command: "ADD", Reason: "in-mesh", Stages: []podsource.Stage{{Name: "apply"}}, Error: &podsource.ResultError{Code: 1}})
	wrote := []step{{}, {outcome: installer.Restored}}
	for _, part := range m.Watch(&script{name: "binaries"}, &script{name: "kubeconfig"}, &script{name: "config", steps: wrote}) {
		for range 3 {
			if _, err := part.Ensure(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string][]string{}
	for _, family := range families {
		var labels []string
		for _, pair := range family.GetMetric()[0].GetLabel() {
			labels = append(labels, pair.GetName())
		}
		names[family.GetName()] = labels
		if family.GetMetric()[0].GetHistogram() != nil {
			delete(names, family.GetName())
			names[family.GetName()+"_bucket"], names[family.GetName()+"_sum"], names[family.GetName()+"_count"] = slices.Concat(labels, []string{"le"}), labels, labels
		}
	}
	return names
}

// expressions returns those of the alerts and the dashboard, by their titles.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations map[string]string
				Labels      map[string]string
			}
		}
	}
	decode(t, "alerts.yaml", &rules)
	text, err := os.ReadFile("../../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, manual, _ := strings.Cut(string(text), "\n## Alerts\n")
	all := map[string]string{}
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" || rule.Labels["severity"] == "" {
				t.Errorf("alert %s lacks a summary, a description or a severity", rule.Alert)
			}
			all["alert "+rule.Alert] = rule.Expr
			if !strings.Contains(manual, "`"+rule.Alert+"`") {
				t.Errorf("docs/operations.md says nothing of alert %s", rule.Alert)
			}
		}
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ RefID, Expr string }
		}
		Templating struct {
			List []struct{ Query any }
		}
	}
	decode(t, "dashboard.json", &dashboard)
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			all["panel "+panel.Title+" "+target.RefID] = target.Expr
		}
	}
	variables, err := json.Marshal(dashboard.Templating)
	if err != nil {
		t.Fatal(err)
	}
	all["variables"] = string(variables)
	return all
}

func decode(t *testing.T, name string, to any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(monitoring, name))
	if err == nil {
		err = yaml.Unmarshal(data, to) // JSON is a subset
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// A metric in an expression with the selectors of its labels, and the labels that it is summed by.
var (
	selector = regexp.MustCompile(`\b((?:istio_cni|meshcni|kube|ztunnel|nodeagent)_[a-z_]+)(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)\s*"`)
	grouping = regexp.MustCompile(`\bby \(([^)]*)\)`)
)

// TestMonitoringKnowsTheMetrics compares alerts and dashboard with the served metrics, both ways.
func TestMonitoringKnowsTheMetrics(t *testing.T) {
	t.Parallel()
	metrics, used := exported(t), map[string]bool{}
	// Of kube-state-metrics.
	others := map[string][]string{
		"kube_pod_status_ready":                          {"namespace", "pod", "condition"},
		"kube_daemonset_status_desired_number_scheduled": {"namespace", "daemonset"},
		"kube_daemonset_status_number_ready":             {"namespace", "daemonset"},
		"kube_daemonset_status_updated_number_scheduled": {"namespace", "daemonset"},
	}
	// Added by the chart's PodMonitor, and by the operator of Prometheus.
	target := []string{"node", "pod"}
	for title, expression := range expressions(t) {
		known := slices.Clone(target)
		found := selector.FindAllStringSubmatch(expression, -1)
		if len(found) == 0 {
			t.Errorf("%s asks for no metric: %s", title, expression)
		}
		for _, one := range found {
			labels, ours := metrics[one[1]]
			if ours {
				used[one[1]] = true
			} else if labels = others[one[1]]; labels == nil {
				t.Errorf("%s: there is no %s", title, one[1])
			}
			known = append(known, labels...)
			for _, label := range matcher.FindAllStringSubmatch(one[2], -1) {
				if !slices.Contains(slices.Concat(labels, target), label[1]) {
					t.Errorf("%s: %s has no label %s", title, one[1], label[1])
				}
			}
		}
		for _, by := range grouping.FindAllStringSubmatch(expression, -1) {
			for label := range strings.SplitSeq(by[1], ",") {
				if !slices.Contains(known, strings.TrimSpace(label)) {
					t.Errorf("%s: nothing in it has the label %q", title, label)
				}
			}
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(metrics)), slices.Sorted(maps.Keys(used))); diff != "" {
		t.Errorf("metrics that are served, and those that are used (-served +used):\n%s", diff)
	}
}

// TestPodsThatNobodyCapturedBeforeTheDaemon: pods that start while there is no daemon are counted
// before the first scrape, so that increase alone would never see them.
func TestPodsThatNobodyCapturedBeforeTheDaemon(t *testing.T) {
	t.Parallel()
	expression := expressions(t)["alert InstallCNIPodsUncaptured"]
	for _, part := range []string{"increase(meshcni_plugin_decisions_total{", "unless meshcni_plugin_decisions_total offset 10m"} {
		if !strings.Contains(expression, part) {
			t.Errorf("no %q in %s", part, expression)
		}
	}
	for _, reason := range letPass() {
		if !strings.Contains(expression, reason) {
			t.Errorf("nobody is told of pods that are let pass as %q", reason)
		}
	}
}

// TestMonitoringKnowsTheValues: the values that alerts select by are among those that are counted.
func TestMonitoringKnowsTheValues(t *testing.T) {
	t.Parallel()
	values := slices.Concat(reasons(), installResults(), claimStates(), responseCodes(), stepLabels(),
		[]string{sourcePlugin, sourceFeed, ambientnews.Ack, ambientnews.Nack},
		[]string{"unseen", "ADD", "total", "pod", "not-ready", "failed", "$node", "fail", // of package agent
			"true", `istio-cni-(.+-)?node-[a-z0-9]+`, daemonSets})
	for _, verdict := range verdicts() {
		values = append(values, string(verdict))
	}
	for _, kind := range ambientpart.Kinds() {
		values = append(values, string(kind))
	}
	quoted := regexp.MustCompile(`=~?\s*"([^"]*)"`)
	for title, expression := range expressions(t) {
		for _, value := range quoted.FindAllStringSubmatch(expression, -1) {
			for one := range strings.SplitSeq(value[1], "|") {
				if title != "variables" && !slices.Contains(values, one) {
					t.Errorf("%s: nothing is called %q", title, one)
				}
			}
		}
	}
}

// daemonSets is the pattern of the names of the chart's DaemonSets.
const daemonSets = `istio-cni-(.+-)?node`

// TestMissingDaemonsAlert checks that an alert compares the nodes that should have a daemon with
// those whose daemon is ready, because a pod that is never created is in no metric of pods. A
// rollout that proceeds is no reason.
func TestMissingDaemonsAlert(t *testing.T) {
	t.Parallel()
	of := `{daemonset=~"` + daemonSets + `"}`
	want := "kube_daemonset_status_desired_number_scheduled" + of + " - kube_daemonset_status_number_ready" + of + " > 0 " +
		"and changes(kube_daemonset_status_updated_number_scheduled" + of + "[5m]) == 0"
	if got := strings.Join(strings.Fields(expressions(t)["alert InstallCNIMissing"]), " "); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	pattern := regexp.MustCompile("^(?:" + daemonSets + ")$")
	for name, ours := range map[string]bool{"istio-cni-node": true, "istio-cni-canary-node": true, "istio-cni-nodes": false, "ztunnel": false} {
		if pattern.MatchString(name) != ours {
			t.Errorf("%s: %t", name, !ours)
		}
	}
}

// TestAlertsNameTheNode checks that no alert and no panel is about an instance, which is a pod's
// address, and that each alert whose metrics are a daemon's says which node it is about.
func TestAlertsNameTheNode(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"alerts.yaml", "dashboard.json"} {
		data, err := os.ReadFile(filepath.Join(monitoring, name))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(data), "instance") {
			t.Errorf("%s asks for an instance", name)
		}
	}
	for title, expression := range expressions(t) {
		alert := strings.HasPrefix(title, "alert ")
		for _, by := range grouping.FindAllStringSubmatch(expression, -1) {
			if alert && !strings.HasPrefix(by[1], "node, pod") {
				t.Errorf("%s does not tell nodes and pods apart: %s", title, by[0])
			}
		}
	}
}

// TestVerdictsAlert has an alert for each verdict on a pod that may not be captured, and none for
// the others.
func TestVerdictsAlert(t *testing.T) {
	t.Parallel()
	alerting := map[string]bool{}
	for title, expression := range expressions(t) {
		for _, found := range regexp.MustCompile(`meshcni_repair_pods\{verdict=~?"([^"]*)"\}`).FindAllStringSubmatch(expression, -1) {
			for verdict := range strings.SplitSeq(found[1], "|") {
				alerting[verdict] = alerting[verdict] || strings.HasPrefix(title, "alert ")
			}
		}
	}
	for _, verdict := range verdicts() {
		uncaptured := slices.Contains([]repair.Verdict{repair.Broken, repair.Suspect, repair.Unknown}, verdict)
		if alerting[string(verdict)] != uncaptured {
			t.Errorf("%s alerts: %t", verdict, !uncaptured)
		}
	}
}

// TestAmbientAlerts has an alert for each way in which a pod is not as ambient mode wants it, and
// none for the pods that are.
func TestAmbientAlerts(t *testing.T) {
	t.Parallel()
	all := expressions(t)
	for _, kind := range ambientpart.Kinds() {
		expression := all["alert InstallCNIAmbientPodsWait"]
		if strings.Contains(expression, string(kind)) != (kind != ambientpart.Enrolled) {
			t.Errorf("pods that are %s alert: %s", kind, expression)
		}
	}
	if expression := all["alert InstallCNIAmbientWithoutProxy"]; expression != "ztunnel_connected == 0" {
		t.Errorf("a node without a proxy alerts by %q", expression)
	}
}

// TestFightsShow has an alert and a panel for another program that keeps undoing what the daemon
// does.
func TestFightsShow(t *testing.T) {
	t.Parallel()
	shown := map[string]bool{}
	for title, expression := range expressions(t) {
		if strings.Contains(expression, "meshcni_part_contested") {
			kind, _, _ := strings.Cut(title, " ")
			shown[kind] = true
		}
	}
	if diff := cmp.Diff(map[string]bool{"alert": true, "panel": true}, shown); diff != "" {
		t.Errorf("where fights show (-want +got):\n%s", diff)
	}
}
