// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

type progress struct{ out io.Writer }

// stepWidth is the column of a step's tick.
const stepWidth = 78

// step announces a step, runs it, and prints its result and duration. If it succeeds, the detail is
// printed below it.
func (p progress) step(name string, do func() (detail string, err error)) error {
	fmt.Fprintf(p.out, "  %s %s ", name, strings.Repeat(".", max(3, stepWidth-utf8.RuneCountInString(name))))
	start := time.Now()
	detail, err := do()
	took := duration(time.Since(start))
	if err != nil {
		fmt.Fprintf(p.out, "✗ %s\n", took)
		return fmt.Errorf("%s: %w", name, err)
	}
	fmt.Fprintf(p.out, "✓ %s\n", took)
	p.detail(detail)
	return nil
}

func (p progress) detail(text string) {
	for line := range strings.Lines(text) {
		fmt.Fprintf(p.out, "      %s\n", strings.TrimRight(line, "\n"))
	}
}

func (p progress) heading(text string) { fmt.Fprintf(p.out, "\n%s\n", text) }

// duration returns "1.23 s" or "12 ms", no more exact than is useful.
func duration(d time.Duration) string {
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	default:
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	}
}
