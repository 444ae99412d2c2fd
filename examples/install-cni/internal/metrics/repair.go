// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/meshcni/meshcni/examples/internal/repairconf"
	"github.com/meshcni/meshcni/repair"
)

// verdicts returns the verdicts on pods; while repair runs, the metrics include all of them.
func verdicts() []repair.Verdict {
	return []repair.Verdict{
		repair.NotOurs, repair.Healthy, repair.Pending, repair.Unknown, repair.Changed, repair.Outdated, repair.Suspect, repair.Broken,
	}
}

// Why the handling of a pod is delayed.
const (
	delayedByLimit  = "limit"
	delayedByUnseen = "unseen"
)

// repairCollector reports the state of repair. Its counters restart with the process that repairs.
type repairCollector struct {
	status                               func() *repairconf.Status
	done, pods, delayed, untold, scanned *prometheus.Desc
}

func newRepairCollector(status func() *repairconf.Status) *repairCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &repairCollector{
		status: status,
		done: desc("istio_cni_repair_pods_repaired_total",
			"How often something was done about a pod that is not captured, by what and with which result.", "type", "result"),
		pods:    desc("meshcni_repair_pods", "Pods of the node, by what is the matter with them.", "verdict"),
		delayed: desc("meshcni_repair_pods_delayed", "Pods that wait: for a limit, or to be looked at.", "reason"),
		untold:  desc("meshcni_repair_events_failed_total", "How often an event couldn't be put on a pod."),
		scanned: desc("meshcni_repair_scan_complete", "1 when all pods that were there at the start have been looked at."),
	}
}

// Describe sends all descriptions.
func (c *repairCollector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{c.done, c.pods, c.delayed, c.untold, c.scanned} {
		to <- desc
	}
}

// Collect sends what is known.
func (c *repairCollector) Collect(to chan<- prometheus.Metric) {
	s := c.status()
	if s == nil {
		return
	}
	send := func(desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, kind, value, labels...)
	}
	for _, count := range s.Done {
		send(c.done, prometheus.CounterValue, float64(count.Times), string(count.Mode), count.Result)
	}
	for _, verdict := range verdicts() {
		send(c.pods, prometheus.GaugeValue, float64(s.Pods[verdict]), string(verdict))
	}
	send(c.delayed, prometheus.GaugeValue, float64(s.Waiting), delayedByLimit)
	send(c.delayed, prometheus.GaugeValue, float64(s.Unseen), delayedByUnseen)
	send(c.untold, prometheus.CounterValue, float64(s.Untold))
	send(c.scanned, prometheus.GaugeValue, flag(s.Scanned))
}
