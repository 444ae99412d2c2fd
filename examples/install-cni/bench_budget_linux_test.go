// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"testing"
)

// atMost reports a figure and fails the benchmark if it is above the budget.
func atMost(b *testing.B, got float64, unit string, most float64) {
	b.Helper()
	b.ReportMetric(got, unit)
	verdict := "met"
	if got > most {
		verdict = "NOT MET"
		b.Errorf("%.2f %s: the budget is %g", got, unit, most)
	}
	fmt.Fprintf(os.Stdout, "\n%s: %.2f %s, at most %g: %s\n", b.Name(), got, unit, most, verdict)
}
