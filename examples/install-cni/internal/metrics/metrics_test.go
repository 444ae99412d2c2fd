// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/conflist/installer"
	"github.com/meshcni/meshcni/examples/install-cni/internal/health"
	"github.com/meshcni/meshcni/examples/internal/repairconf"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/repair"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func newMetrics(t testing.TB, state *health.State) *Metrics {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	written := noon.Add(-90 * time.Second)
	if err := errors.Join(os.WriteFile(token, nil, 0o600), os.Chtimes(token, written, written)); err != nil {
		t.Fatal(err)
	}
	m := New("v1.2.3", state)
	m.Token(token, func() time.Time { return noon })
	m.Claim(func() string { return "held" })
	m.Server(func() *podsource.ServerStatus {
		return &podsource.ServerStatus{Age: 200, Failure: "refused", Failures: 12}
	})
	m.Repair(func() *repairconf.Status {
		return &repairconf.Status{
			Scanned: true, Pods: map[repair.Verdict]int{repair.Broken: 2, repair.Healthy: 7}, Waiting: 1, Unseen: 3, EventsFailed: 4,
			Done: []repairconf.Count{{Mode: repair.ModeLabel, Result: "success", Times: 5}, {Mode: repair.ModeReport, Result: "fail", Times: 6}},
		}
	})
	return m
}

func TestRepair(t *testing.T) {
	t.Parallel()
	want(t, newMetrics(t, health.NewState()), "istio_cni_repair_pods_repaired_total",
		`istio_cni_repair_pods_repaired_total{result="fail",type="report"} 6`, `istio_cni_repair_pods_repaired_total{result="success",type="label"} 5`)
	want(t, newMetrics(t, health.NewState()), "meshcni_repair_pods_delayed",
		`meshcni_repair_pods_delayed{reason="limit"} 1`, `meshcni_repair_pods_delayed{reason="unseen"} 3`)
}

func Example() {
	m := New("v1.2.3", health.NewState())
	m.Result(podsource.Result{Command: "ADD", Captured: true, Reason: string(sidecar.ReasonInMesh)})
	recorder := httptest.NewRecorder()
	m.Handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(recorder.Body.String()) {
		if strings.HasPrefix(line, "meshcni_plugin_decisions_total") {
			fmt.Print(line)
		}
	}
	// Output:
	// meshcni_plugin_decisions_total{captured="false",reason="fail-open"} 0
	// meshcni_plugin_decisions_total{captured="false",reason="uninstalled"} 0
	// meshcni_plugin_decisions_total{captured="true",reason="in-mesh"} 1
}

// scrape returns the samples with this prefix, without the buckets of histograms.
func scrape(t *testing.T, m *Metrics, prefix string) []string {
	t.Helper()
	recorder := httptest.NewRecorder()
	m.Handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if recorder.Code != http.StatusOK {
		t.Fatalf("status %d: %s", recorder.Code, recorder.Body)
	}
	var samples []string
	for line := range strings.Lines(recorder.Body.String()) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, prefix) && !strings.Contains(line, "_bucket{") {
			samples = append(samples, line)
		}
	}
	return samples
}

func want(t *testing.T, m *Metrics, prefix string, samples ...string) {
	t.Helper()
	if diff := cmp.Diff(samples, scrape(t, m, prefix)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", prefix, diff)
	}
}

func TestWhatIsLookedAt(t *testing.T) {
	t.Parallel()
	state := health.NewState("config")
	m := newMetrics(t, state)
	want(t, m, "istio_cni_install_ready", "istio_cni_install_ready 0")
	want(t, m, "meshcni_service_account_token_age_seconds", "meshcni_service_account_token_age_seconds 90")
	want(t, m, "meshcni_build_info", `meshcni_build_info{version="v1.2.3"} 1`)
	want(t, m, "meshcni_claim", `meshcni_claim{state="free"} 0`, `meshcni_claim{state="held"} 1`, `meshcni_claim{state="missing"} 0`,
		`meshcni_claim{state="superseded"} 0`, `meshcni_claim{state="unreadable"} 0`)
	state.Failed("config", "broken", "")
	state.Set("config", "")
	want(t, m, "istio_cni_install_ready", "istio_cni_install_ready 1")
	want(t, m, "meshcni_part_", `meshcni_part_contested{part="config"} 0`, `meshcni_part_ready{part="config"} 1`, `meshcni_part_restarts_total{part="config"} 1`)
	none := New("v1.2.3", state)
	none.Token(filepath.Join(t.TempDir(), "token"), time.Now)
	none.Server(func() *podsource.ServerStatus { return nil })
	none.Repair(func() *repairconf.Status { return nil })
	want(t, none, "meshcni_repair")
	want(t, none, "meshcni_api_server")
	want(t, none, "meshcni_service_account_token_age_seconds")
}

func TestServer(t *testing.T) {
	t.Parallel()
	m := newMetrics(t, health.NewState())
	want(t, m, "meshcni_api_server_silence_seconds", "meshcni_api_server_silence_seconds 200")
	want(t, m, "meshcni_api_server_failures", `meshcni_api_server_failures{kind="401"} 0`, `meshcni_api_server_failures{kind="403"} 0`,
		`meshcni_api_server_failures{kind="429"} 0`, `meshcni_api_server_failures{kind="5xx"} 0`, `meshcni_api_server_failures{kind="dns"} 0`,
		`meshcni_api_server_failures{kind="other"} 0`, `meshcni_api_server_failures{kind="refused"} 12`,
		`meshcni_api_server_failures{kind="timeout"} 0`, `meshcni_api_server_failures{kind="tls"} 0`)
}

func TestResults(t *testing.T) {
	t.Parallel()
	m := newMetrics(t, health.NewState())
	m.Result(podsource.Result{
		Command: "ADD", Source: "agent", Captured: true, Reason: string(sidecar.ReasonInMesh),
		Stages: []podsource.Stage{{Name: "source", Milliseconds: 1.5}, {Name: "apply", Milliseconds: 2.5}, {Name: "\xff made up", Milliseconds: 4}},
	})
	m.Result(podsource.Result{Command: "ADD", Reason: "made up", Error: &podsource.ResultError{Code: 7}})
	m.Result(podsource.Result{Command: "made up", Source: "made up", Stages: []podsource.Stage{{Name: "plan"}}, Error: &podsource.ResultError{Code: 12345}})
	m.Result(podsource.Result{Command: "ADD", Reason: "ambient"})
	m.Result(podsource.Result{Command: "ADD", Error: &podsource.ResultError{Code: 210}})
	m.Result(podsource.Result{Command: "DEL"})
	want(t, m, "meshcni_plugin_decisions", `meshcni_plugin_decisions_total{captured="false",reason="ambient"} 1`, `meshcni_plugin_decisions_total{captured="false",reason="fail-open"} 0`,
		`meshcni_plugin_decisions_total{captured="false",reason="other"} 1`, `meshcni_plugin_decisions_total{captured="false",reason="uninstalled"} 0`,
		`meshcni_plugin_decisions_total{captured="true",reason="in-mesh"} 1`)
	want(t, m, "meshcni_plugin_failures", `meshcni_plugin_failures_total{code="210",command="ADD"} 1`,
		`meshcni_plugin_failures_total{code="7",command="ADD"} 1`,
		`meshcni_plugin_failures_total{code="other",command="other"} 1`)
	want(t, m, "meshcni_plugin_stage_duration_seconds_sum",
		`meshcni_plugin_stage_duration_seconds_sum{command="ADD",source="agent",stage="apply"} 0.0025`,
		`meshcni_plugin_stage_duration_seconds_sum{command="ADD",source="agent",stage="other"} 0.004`,
		`meshcni_plugin_stage_duration_seconds_sum{command="ADD",source="agent",stage="source"} 0.0015`,
		`meshcni_plugin_stage_duration_seconds_sum{command="ADD",source="agent",stage="total"} 0.008`,
		`meshcni_plugin_stage_duration_seconds_sum{command="other",source="other",stage="plan"} 0`,
		`meshcni_plugin_stage_duration_seconds_sum{command="other",source="other",stage="total"} 0`,
	)
}

func TestRequests(t *testing.T) {
	t.Parallel()
	m := newMetrics(t, health.NewState())
	m.Request("pod", "ok")
	m.Request("pod", "ok")
	want(t, m, "meshcni_agent_requests", `meshcni_agent_requests_total{outcome="ok",request="pod"} 2`)
}

// step is what a part of the installer does in one run.
type step struct {
	outcome installer.Result
	err     error
}

// script is a part that does one step after the other, then nothing.
type script struct {
	installer.Part
	name  string
	steps []step
}

func (s *script) Name() string { return s.name }

func (s *script) Ensure(context.Context) (installer.Result, error) {
	if len(s.steps) == 0 {
		return installer.Right, nil
	}
	next := s.steps[0]
	s.steps = s.steps[1:]
	return next.outcome, next.err
}

func TestInstallations(t *testing.T) {
	t.Parallel()
	m := newMetrics(t, health.NewState())
	wrote, restored := step{outcome: installer.Wrote}, step{outcome: installer.Restored}
	failed, waiting := step{err: errors.New("broken")}, step{err: fmt.Errorf("%w: for a network", installer.ErrWaiting)}
	binaries := &script{name: "binaries", steps: []step{failed, wrote, {}, restored}}
	kubeconfig := &script{name: "kubeconfig", steps: []step{failed, wrote, {}, wrote}}
	config := &script{name: "config", steps: []step{waiting, wrote, {}, {}, restored, restored, {}, failed, failed}}
	parts := m.Watch(binaries, kubeconfig, config)
	for range 10 {
		for _, part := range parts {
			_, _ = part.Ensure(t.Context())
		}
	}
	want(t, m, "istio_cni_installs_total",
		`istio_cni_installs_total{result="COPY_BINARIES_FAILURE"} 1`,
		`istio_cni_installs_total{result="CREATE_CNI_CONFIG_FAILURE"} 2`,
		`istio_cni_installs_total{result="CREATE_KUBECONFIG_FAILURE"} 1`,
		`istio_cni_installs_total{result="SUCCESS"} 3`, // at first, after token and drift
	)
	want(t, m, "meshcni_drift", `meshcni_drift_found_total{part="binaries"} 1`, `meshcni_drift_found_total{part="config"} 1`,
		`meshcni_drift_healed_total{part="binaries"} 1`, `meshcni_drift_healed_total{part="config"} 1`)
}

// TestCulprits bounds a label whose values come from other programs' files.
func TestCulprits(t *testing.T) {
	t.Parallel()
	m := newMetrics(t, health.NewState())
	for _, culprit := range []string{"cilium-cni", "unknown", "", "a b", strings.Repeat("x", 65), "cilium-cni"} {
		m.Restored(culprit)
	}
	want(t, m, "meshcni_conflist_restores", `meshcni_conflist_restores_total{culprit="cilium-cni"} 2`,
		`meshcni_conflist_restores_total{culprit="other"} 3`, `meshcni_conflist_restores_total{culprit="unknown"} 1`)
	for i := range 100 {
		m.Restored(fmt.Sprint("plugin", i))
	}
	if got := scrape(t, m, "meshcni_conflist_restores"); len(got) > maxCulprits+1 {
		t.Errorf("%d culprits", len(got))
	}
}
