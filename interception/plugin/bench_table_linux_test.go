// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
)

// The budget beside the limits of the cases.
const (
	mostResident         = 10.0 // MiB, of any ADD
	mostSize             = 9.0  // MiB
	mostSizeWithIPTables = 9.6  // MiB
	mostCIDRs            = 1.5  // times the CPU time of the default ADD, with 1000 CIDRs
	mostTogether         = 20.0 // likewise, of 16 at once
	mostApply            = 1.0  // ms
	// Through the agent's socket, all processes of the node together take no more than the plugin
	// alone by the API server; and as many times its wall time as 0.06 is of 0.082, which is what the
	// two take of istio-cni's.
	mostByAgent     = 1.0
	mostByAgentWall = 0.73
	// A pod that the runtime's annotations decide about costs what VERSION costs, which every call of
	// the plugin costs, and three tenths of it.
	mostOutside = 1.3
	// In ambient mode, the plugin asks one more question about a pod that is not in the mesh.
	mostWithAmbient = 1.5
	// An ambient pod, acknowledgement included, costs little more than a pod with a sidecar by the
	// agent's socket. The proxy itself takes next to nothing here.
	mostEnrolled = 1.2

	unbounded = float64(0)  // there is no limit
	perMiB    = 1024        // KiB
	perMs     = 1000 * 1000 // ns
)

// table has a line for each case and each limit.
func (m *measurement) table(cases []budgetCase) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "medians of %d\tCPU ms\t/empty\tat most\t\twall ms\t/empty\tRSS MiB\tat most\t\t\n", *turns)
	for _, c := range cases {
		costs, ofEmpty := m.costs[c.name], m.ofEmpty[c.name]
		cpu, resident := ratio(costs, ofEmpty, cost.cpuTime), medianOf(costs, cost.resident)/perMiB
		fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%s\t%.2f\t%.2f\t%.2f\t%s\t\n",
			c.name, medianOf(costs, cost.cpuTime)/perMs, cpu, m.budget.verdict(c.name+", CPU", cpu, c.limit),
			medianOf(costs, cost.wallTime)/perMs, ratio(costs, ofEmpty, cost.wallTime), resident,
			m.budget.verdict(c.name+", RSS", resident, c.resident))
	}
	_ = w.Flush() // into a string
	text.WriteString("\n")
	w = tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\t\tat most\t\t\n")
	line := func(name, unit string, got, limit float64) {
		fmt.Fprintf(w, "%s, %s\t%.2f\t%s\t\n", name, unit, got, m.budget.verdict(name+", "+unit, got, limit))
	}
	compare := func(name, unit, to string, part func(cost) float64, limit float64) {
		line(name, unit+" / "+to, ratio(m.costs[name], m.costs[to], part), limit)
	}
	compare(outside, "CPU", onlyVersion, cost.cpuTime, mostOutside)
	for _, name := range []string{bySocket, outside} {
		compare(name+withAmbient, "CPU", name, cost.cpuTime, mostWithAmbient)
	}
	compare(byAgent, "all processes' CPU", captured, cost.everywhere, mostByAgent)
	compare(byAgent, "wall", captured, cost.wallTime, mostByAgentWall)
	compare(manyCIDRs, "CPU", captured, cost.cpuTime, mostCIDRs)
	compare(parallelADD, "CPU of all", captured, cost.cpuTime, mostTogether)
	compare(parallelADD, "wall", captured, cost.wallTime, unbounded)
	compare(enrolled, "wall", besideEnroller, cost.wallTime, mostEnrolled)
	compare(enrolled, "plugin's CPU", besideEnroller, cost.cpuTime, mostEnrolled)
	compare(enrolled, "all processes' CPU", besideEnroller, cost.everywhere, unbounded)
	line(enrolled, "wall ms", medianOf(m.costs[enrolled], cost.wallTime)/perMs, unbounded)
	line(enrolled, "CPU ms of install-cni, node-watcher and node-ambient", medianOf(m.costs[enrolled], func(c cost) float64 { return c.agent })/perMs, unbounded)
	line(byAgent, "CPU ms of install-cni and node-watcher", medianOf(m.costs[byAgent], func(c cost) float64 { return c.agent })/perMs, unbounded)
	line(inProcess, "wall ms, default plan, fresh namespace", median(m.applied), mostApply)
	line("size of the binary", "MiB", mebibytes(m, m.plugin), mostSize)
	line("an empty program", "CPU ms", medianOf(m.ofEmpty[captured], cost.cpuTime)/perMs, unbounded)
	_ = w.Flush() // likewise
	return text.String()
}

func mebibytes(t testing.TB, path string) float64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return float64(info.Size()) / (1 << 20)
}
