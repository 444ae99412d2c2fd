// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/meshcni/meshcni/examples/install-cni/internal/health"
)

// Metrics is safe for concurrent use. Create it with [New].
type Metrics struct {
	registry *prometheus.Registry
	state    *health.State

	installs      *prometheus.CounterVec
	driftFound    *prometheus.CounterVec
	driftHealed   *prometheus.CounterVec
	restores      *prometheus.CounterVec
	stageSeconds  *prometheus.HistogramVec
	decisions     *prometheus.CounterVec
	failures      *prometheus.CounterVec
	agentRequests *prometheus.CounterVec

	culpritsLock sync.Mutex
	culprits     map[string]bool // those that have metrics
}

// New registers the metrics that every daemon has. Those of parts that not every daemon has are
// added by [Metrics.Token], [Metrics.Claim], [Metrics.Server] and [Metrics.Repair].
func New(version string, state *health.State) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		state:    state,
		culprits: map[string]bool{},
		installs: counter("istio_cni_installs_total", "Installations of the plugin, by result.", "result"),
		driftFound: counter("meshcni_drift_found_total",
			"How often something that was installed was found changed by others, by part.", "part"),
		driftHealed: counter("meshcni_drift_healed_total", "How often it was put right again, by part.", "part"),
		restores: counter("meshcni_conflist_restores_total",
			"How often the plugin's entry was put back into the CNI configuration, by who had taken it away.", "culprit"),
		stageSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "meshcni_plugin_stage_duration_seconds",
			Help:    "How long the stages of the plugin's commands take, by the source that knew the pod; stage total is all of them.",
			Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30},
		}, []string{"command", "stage", "source"}),
		decisions: counter("meshcni_plugin_decisions_total", "What the plugin decided about pods, by reason.", "captured", "reason"),
		failures:  counter("meshcni_plugin_failures_total", "Commands of the plugin that failed, by the code of the CNI error.", "command", "code"),
		agentRequests: counter("meshcni_agent_requests_total",
			"Requests at the agent's sockets, and what was collected from the disk, by outcome.", "request", "outcome"),
	}
	m.registry.MustRegister(m.installs, m.driftFound, m.driftHealed, m.restores, m.stageSeconds, m.decisions, m.failures, m.agentRequests,
		parts(version, state))
	// From the start, so that the first increase is visible.
	for _, result := range installResults() {
		m.installs.WithLabelValues(result)
	}
	for _, reason := range letPass() {
		m.decisions.WithLabelValues("false", reason)
	}
	return m
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// Handler serves /metrics. It has the parts checked first: a check may change what they report.
func (m *Metrics) Handler() http.Handler {
	read := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 5 * time.Second})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		m.state.Look(r.Context())
		read.ServeHTTP(w, r)
	})
	return mux
}

// Request counts a request at one of the agent's sockets.
func (m *Metrics) Request(request, outcome string) {
	m.agentRequests.WithLabelValues(request, outcome).Inc()
}

// maxCulprits bounds the label culprit, whose values come from files that other programs write.
const maxCulprits = 16

// Restored counts that the plugin's entry was restored in the CNI configuration. The culprit is a
// plugin's type, or "unknown". It is counted as "other" if it is unfit as a label: after 16
// different ones, or if it does not look like a plugin's name.
func (m *Metrics) Restored(culprit string) {
	m.culpritsLock.Lock()
	defer m.culpritsLock.Unlock()
	if !m.culprits[culprit] {
		if len(m.culprits) >= maxCulprits || !nameOfPlugin(culprit) {
			culprit = "other"
		}
		m.culprits[culprit] = true
	}
	m.restores.WithLabelValues(culprit).Inc()
}

// nameOfPlugin reports whether a word looks like a plugin's type, which is the name of a program.
func nameOfPlugin(word string) bool {
	unusual := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r)
	}
	return word != "" && len(word) <= 64 && !strings.ContainsFunc(word, unusual)
}
