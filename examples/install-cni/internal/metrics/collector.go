// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/meshcni/meshcni/examples/install-cni/internal/health"
	"github.com/meshcni/meshcni/examples/internal/contact"
	"github.com/meshcni/meshcni/examples/internal/repairconf"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/repair"
)

// collector has metrics whose values are read when they are scraped.
type collector struct {
	descs []*prometheus.Desc
	read  func(to chan<- prometheus.Metric)
}

func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range c.descs {
		to <- desc
	}
}

func (c *collector) Collect(to chan<- prometheus.Metric) { c.read(to) }

// sample sends one value of a metric.
type sample func(to chan<- prometheus.Metric, value float64, labels ...string)

func (c *collector) gauge(name, help string, labels ...string) sample {
	return c.metric(prometheus.GaugeValue, name, help, labels...)
}

func (c *collector) counter(name, help string, labels ...string) sample {
	return c.metric(prometheus.CounterValue, name, help, labels...)
}

func (c *collector) metric(kind prometheus.ValueType, name, help string, labels ...string) sample {
	desc := prometheus.NewDesc(name, help, labels, nil)
	c.descs = append(c.descs, desc)
	return func(to chan<- prometheus.Metric, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, kind, value, labels...)
	}
}

// parts has the state of the parts, and the daemon's version.
func parts(version string, state *health.State) *collector {
	c := &collector{}
	build := c.gauge("meshcni_build_info", "1, with the daemon's version.", "version")
	ready := c.gauge("istio_cni_install_ready", "1 when the plugin is installed and all parts that count are ready.")
	partReady := c.gauge("meshcni_part_ready", "1 when the part does what it is there for.", "part")
	contested := c.gauge("meshcni_part_contested", "1 while another program keeps undoing what the part does.", "part")
	restarts := c.counter("meshcni_part_restarts_total", "How often the part failed as a whole and was started again.", "part")
	c.read = func(to chan<- prometheus.Metric) {
		build(to, 1, version)
		ready(to, flag(len(state.Reasons()) == 0))
		for _, condition := range state.Conditions() {
			partReady(to, flag(condition.Ready), condition.Part)
			contested(to, flag(condition.Contested != ""), condition.Part)
			restarts(to, float64(condition.Restarts), condition.Part)
		}
	}
	return c
}

// Token adds the age of the service account's token, from the time of its file. Without the file,
// the metric is omitted.
func (m *Metrics) Token(file string, now func() time.Time) {
	c := &collector{}
	age := c.gauge("meshcni_service_account_token_age_seconds", "How long ago the service account's token was written.")
	c.read = func(to chan<- prometheus.Metric) {
		if info, err := os.Stat(file); err == nil {
			age(to, now().Sub(info.ModTime()).Seconds())
		}
	}
	m.registry.MustRegister(c)
}

// claimStates returns the states of the node's claim: held by this daemon, held by a newer one,
// never taken, missing, or unreadable.
func claimStates() []string { return []string{"held", "superseded", "free", "missing", "unreadable"} }

// Claim adds the state of the node's claim, as installer.ClaimState returns it.
func (m *Metrics) Claim(current func() string) {
	c := &collector{}
	claim := c.gauge("meshcni_claim", "1 for the state that the claim on the node is in.", "state")
	c.read = func(to chan<- prometheus.Metric) {
		now := current()
		for _, state := range claimStates() {
			claim(to, flag(state == now), state)
		}
	}
	m.registry.MustRegister(c)
}

// Server adds how the API server answers the node-watcher. The status is nil while it is unknown.
func (m *Metrics) Server(status func() *podsource.ServerStatus) {
	c := &collector{}
	silence := c.gauge("meshcni_api_server_silence_seconds", "For how long the API server has said nothing about the node's pods.")
	failures := c.gauge("meshcni_api_server_failures",
		"How often the API server has failed since it last said something about the node's pods, under the kind of the last failure.", "kind")
	c.read = func(to chan<- prometheus.Metric) {
		server := status()
		if server == nil {
			return
		}
		silence(to, server.Age)
		for _, kind := range contact.Kinds() {
			failures(to, float64(server.Failures)*flag(kind == server.Failure), kind)
		}
	}
	m.registry.MustRegister(c)
}

// verdicts returns the verdicts on pods; while repair runs, the metrics include all of them.
func verdicts() []repair.Verdict {
	return []repair.Verdict{
		repair.NotOurs, repair.Healthy, repair.Pending, repair.Unknown, repair.Changed, repair.Outdated, repair.Suspect, repair.Broken,
	}
}

// Repair adds the state of repair. The status is nil while repair is off or its state is unknown.
// The counters start at zero again with the process that repairs.
func (m *Metrics) Repair(status func() *repairconf.Status) {
	c := &collector{}
	done := c.counter("istio_cni_repair_pods_repaired_total",
		"How often something was done about a pod that is not captured, by what and with which result.", "type", "result")
	pods := c.gauge("meshcni_repair_pods", "Pods of the node, by what is the matter with them.", "verdict")
	delayed := c.gauge("meshcni_repair_pods_delayed", "Pods that wait: for a limit, or to be looked at.", "reason")
	eventsFailed := c.counter("meshcni_repair_events_failed_total", "How often an event couldn't be put on a pod.")
	scanned := c.gauge("meshcni_repair_scan_complete", "1 when all pods that were there at the start have been looked at.")
	c.read = func(to chan<- prometheus.Metric) {
		s := status()
		if s == nil {
			return
		}
		for _, count := range s.Done {
			done(to, float64(count.Times), string(count.Mode), count.Result)
		}
		for _, verdict := range verdicts() {
			pods(to, float64(s.Pods[verdict]), string(verdict))
		}
		delayed(to, float64(s.Waiting), "limit")
		delayed(to, float64(s.Unseen), "unseen")
		eventsFailed(to, float64(s.EventsFailed))
		scanned(to, flag(s.Scanned))
	}
	m.registry.MustRegister(c)
}

func flag(set bool) float64 {
	if set {
		return 1
	}
	return 0
}
