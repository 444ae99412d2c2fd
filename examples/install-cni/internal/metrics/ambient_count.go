// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/meshcni/meshcni/examples/internal/ambientnews"
)

// The sources of pods that are enrolled.
const (
	sourcePlugin = "plugin"
	sourceFeed   = "feed"
)

// counted is a counter of what the agent counts.
type counted struct {
	counter *prometheus.CounterVec
	labels  []string // the values before that of ambientnews.Count.Of
	of      []string // the values of ambientnews.Count.Of
}

// ambientCounts returns the counters of what the agent counts. The keys are the kinds of package
// ambient/agent, which the daemon does not link, and those of package ambientnews.
func ambientCounts() map[string]counted {
	parts := []string{"rules", "listeners", "host", "sets"}
	answers := counter("meshcni_ambient_proxy_answers_total", "Answers of proxies, by the request, and whether they did what they were told.",
		"answer", "request")
	requests := []string{"add", "keep", "del", "snapshot sent"}
	return map[string]counted{
		"change": {
			counter: counter("nodeagent_reconcile_events_total", "Pods that the agent of ambient mode was told of, by what has happened.", "type"),
			of:      []string{"add", "update", "delete"},
		},
		"drift": {
			counter: counter("meshcni_ambient_drift_found_total",
				"How often something of ambient mode was found changed by others: a pod's rules, the proxy's listeners in a pod, the host's rules, "+
					"or a member of its sets.", "part"),
			of: parts,
		},
		"healed": {counter: counter("meshcni_ambient_drift_healed_total", "How often it was put right again, by part.", "part"), of: parts},
		"edit": {
			counter: counter("meshcni_ambient_set_edits_total", "Members that were added to the host's sets or removed from them.", "operation"),
			of:      []string{"add", "remove"},
		},
		ambientnews.Ack:  {counter: answers, labels: []string{"ack"}, of: requests},
		ambientnews.Nack: {counter: answers, labels: []string{"nack"}, of: requests},
	}
}

// Count counts what the agent has counted. What a later version counts is left out.
func (a *Ambient) Count(c ambientnews.Count) {
	if c.What == "enrolled" {
		a.seconds.WithLabelValues(sourceFeed).Observe(c.Seconds)
		return
	}
	one, is := a.counts[c.What]
	if !is || c.Times < 0 {
		return
	}
	one.counter.WithLabelValues(append(slices.Clone(one.labels), known(c.Of, one.of...))...).Add(float64(c.Times))
}

// counters returns each counter once.
func (a *Ambient) counters() (all []prometheus.Collector) {
	for _, one := range a.counts {
		if !slices.Contains(all, prometheus.Collector(one.counter)) {
			all = append(all, one.counter)
		}
	}
	return all
}
