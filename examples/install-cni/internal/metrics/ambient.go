// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/examples/install-cni/internal/ambientpart"
	"github.com/meshcni/meshcni/examples/internal/ambientnews"
)

// Ambient counts what happens in ambient mode. Create it with [Metrics.Ambient].
type Ambient struct {
	requests *prometheus.CounterVec
	failures *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	counts   map[string]counted // by ambientnews.Count.What
}

// Ambient adds the metrics of ambient mode. The state is nil while its process has not reported:
// then no proxy counts as connected, and nothing is served about pods. While the process stands by,
// proxies and pods are those of another daemon.
func (m *Metrics) Ambient(state func() *ambientpart.State) *Ambient {
	c := &collector{}
	connected := c.gauge("ztunnel_connected", "How many proxies are connected to the node's agent of ambient mode.")
	pods := c.gauge("meshcni_ambient_pods", "Pods that the agent of ambient mode deals with, by how far they are.", "state")
	steps := c.gauge("meshcni_ambient_pods_at_step", "Pods that are not as they should be, by the step that is taken, waited for or has failed.",
		"step")
	complete := c.gauge("meshcni_ambient_complete", "1 when the agent of ambient mode has been told of all pods of the node.")
	host := c.gauge("meshcni_ambient_host_right",
		"1 while the agent of ambient mode can keep the host's rules and, where these capture the pods, can use the node's proxy.")
	c.read = func(to chan<- prometheus.Metric) {
		s := state()
		if s == nil {
			connected(to, 0)
			return
		}
		if s.StandsBy {
			return
		}
		connected(to, float64(s.Node.Proxies))
		complete(to, flag(s.Node.Complete))
		host(to, flag(s.Node.Host == ""))
		for _, kind := range ambientpart.Kinds() {
			pods(to, float64(s.Pods[kind]), string(kind))
		}
		readSteps(s, func(count int, step string) { steps(to, float64(count), step) })
	}
	a := &Ambient{
		requests: counter("istio_cni_plugin_requests_total", "Requests of plugins for pods of ambient mode, by the status of the answer.",
			"response_code"),
		failures: counter("meshcni_ambient_failures_total",
			"How often a step for a pod of ambient mode has failed that had not failed before.", "step"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "meshcni_ambient_enrol_duration_seconds",
			Help: "How long the agent takes to enrol a pod, with the proxy's acknowledgement, by what has told of it: plugin for a new pod, " +
				"feed for one that runs.",
			Buckets: []float64{.005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30},
		}, []string{"source"}),
		counts: ambientCounts(),
	}
	m.registry.MustRegister(append(a.counters(), c, a.requests, a.failures, a.seconds)...)
	// From the start, so that the first increase is visible.
	for _, code := range responseCodes() {
		a.requests.WithLabelValues(code)
	}
	for _, step := range append(stepLabels(), other) {
		a.failures.WithLabelValues(step)
	}
	for _, source := range []string{sourcePlugin, sourceFeed} {
		a.seconds.WithLabelValues(source)
	}
	for _, one := range a.counts {
		for _, of := range one.of {
			one.counter.WithLabelValues(append(slices.Clone(one.labels), of)...)
		}
	}
	return a
}

// readSteps calls a function with how many pods are at each step. The steps that this version does
// not know are one.
func readSteps(s *ambientpart.State, each func(count int, step string)) {
	unknown := 0
	for step, count := range s.Steps {
		if known(step, stepLabels()...) == other {
			unknown += count
		}
	}
	each(unknown, other)
	for _, step := range stepLabels() {
		each(s.Steps[step], step)
	}
}

// stepLabels returns the steps that a pod may be at for a while.
func stepLabels() []string {
	var all []string
	for _, step := range []ambient.Step{
		ambient.StepOpen, ambient.StepTell, ambient.StepAwaitProxy, ambient.StepPrepare, ambient.StepAwaitTurn, ambient.StepEnter, ambient.StepApply,
		ambient.StepPending, ambient.StepEnabled, ambient.StepClear, ambient.StepDrain, ambient.StepAwaitDrained, ambient.StepWithdraw,
		ambient.StepRemove, ambient.StepLeave, ambient.StepClose,
	} {
		all = append(all, string(step))
	}
	return all
}

// responseCodes returns the statuses with which the agent answers plugins.
func responseCodes() []string { return []string{"200", "400", "500"} }

// Request counts a plugin's request.
func (a *Ambient) Request(r ambientnews.Request) {
	a.requests.WithLabelValues(known(strconv.Itoa(r.Status), responseCodes()...)).Inc()
	if r.Captured {
		a.seconds.WithLabelValues(sourcePlugin).Observe(r.Seconds)
	}
}

// Failed counts a step that has failed. A pod that cannot be looked at has no step, and counts as
// "other".
func (a *Ambient) Failed(step string) {
	a.failures.WithLabelValues(known(step, stepLabels()...)).Inc()
}
