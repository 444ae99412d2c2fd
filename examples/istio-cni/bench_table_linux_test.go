// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
)

// The budget beside the limits of the cases.
const (
	mostResident = 8.0         // MiB, of any ADD
	mostSize     = 7.5         // MiB
	mostCIDRs    = 1.5         // times the CPU time of the default ADD, with 1000 CIDRs
	mostTogether = 20.0        // likewise, of 16 at once
	mostApply    = 1.0         // ms
	unbounded    = float64(0)  // there is no limit
	perMiB       = 1024        // KiB
	perMs        = 1000 * 1000 // ns
)

// table has a line for each case and each limit.
func (m *measurement) table(cases []budgetCase) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "medians of %d\tCPU ms\t/empty\tat most\t\twall ms\t/empty\tRSS MiB\tat most\t\t\n", *turns)
	for _, c := range cases {
		costs, ofEmpty := m.costs[c.name], m.ofEmpty[c.name]
		cpu, resident := ratio(costs, ofEmpty, cost.cpuTime), medianOf(costs, cost.resident)/perMiB
		fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%s\t%.2f\t%.2f\t%.2f\t%s\t\n", c.name, medianOf(costs, cost.cpuTime)/perMs, cpu, verdict(cpu, c.limit),
			medianOf(costs, cost.wallTime)/perMs, ratio(costs, ofEmpty, cost.wallTime), resident, verdict(resident, c.resident))
	}
	_ = w.Flush() // into a string
	text.WriteString("\n")
	w = tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\t\tat most\t\t\n")
	line := func(name, unit string, got, limit float64) {
		fmt.Fprintf(w, "%s, %s\t%.2f\t%s\t\n", name, unit, got, verdict(got, limit))
	}
	line(manyCIDRs, "CPU / "+captured, ratio(m.costs[manyCIDRs], m.costs[captured], cost.cpuTime), mostCIDRs)
	line(parallelADD, "CPU of all / "+captured, ratio(m.costs[parallelADD], m.costs[captured], cost.cpuTime), mostTogether)
	line(parallelADD, "wall / "+captured, ratio(m.costs[parallelADD], m.costs[captured], cost.wallTime), unbounded)
	line(inProcess, "wall ms, default plan, fresh namespace", median(m.applied), mostApply)
	line("size of the binary", "MiB", mebibytes(m, m.plugin), mostSize)
	line("an empty program", "CPU ms", medianOf(m.ofEmpty[captured], cost.cpuTime)/perMs, unbounded)
	_ = w.Flush() // likewise
	return text.String()
}

// verdict is the limit, and whether it is kept.
func verdict(got, limit float64) string {
	switch {
	case limit == unbounded:
		return "-\t"
	case got > limit:
		return fmt.Sprintf("%.1f\tNOT MET", limit)
	default:
		return fmt.Sprintf("%.1f\tmet", limit)
	}
}

func mebibytes(t testing.TB, path string) float64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return float64(info.Size()) / (1 << 20)
}
