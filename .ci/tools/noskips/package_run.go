// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"strings"
)

// packageRun holds what is known of a package's tests so far.
type packageRun struct {
	output []output
	// tests are in the order in which they began.
	tests []string
	// results are "pass", "fail" or "skip"; a running test has no result yet.
	results map[string]string
}

// output is a line that a test printed; an empty test stands for the package itself.
type output struct {
	test, text string
}

func (p *packageRun) add(e event) {
	switch {
	case e.Action == "output":
		p.output = append(p.output, output{test: e.Test, text: e.Output})
	case e.Test == "":
	case e.Action == "run":
		p.tests = append(p.tests, e.Test)
	case isEnd(e.Action):
		p.results[e.Test] = e.Action
	}
}

// repeated is how many lines of a failed test are printed again at the end.
const repeated = 30

// last returns the last lines that a test itself printed.
func (p *packageRun) last(test string) (lines []string) {
	for _, o := range p.output {
		if o.test == test && !isFrame(o.text) {
			lines = append(lines, o.text)
		}
	}
	return lines[max(0, len(lines)-repeated):]
}

// reason returns a skipped test's output in one line.
func (p *packageRun) reason(test string) string {
	var said strings.Builder
	for _, o := range p.output {
		if o.test == test && !isFrame(o.text) {
			said.WriteString(o.text)
		}
	}
	if said.Len() == 0 {
		return "no reason given"
	}
	return oneLine(said.String())
}

// print writes the package's own output, and the output of all its tests if it failed: a data race
// is reported to whichever test runs at that moment, and that test may have passed.
func (p *packageRun) print(out io.Writer, failed bool) {
	var text strings.Builder
	for _, o := range p.output {
		if isWorthPrinting(o, failed) {
			text.WriteString(o.text)
		}
	}
	_, _ = io.WriteString(out, text.String())
}

func isWorthPrinting(o output, failed bool) bool {
	switch {
	case strings.HasPrefix(o.text, "=== "):
		return false
	case failed:
		return true
	}
	return o.test == "" && o.text != "PASS\n" && !strings.HasPrefix(o.text, "-test.shuffle ")
}

// isFrame reports whether the testing package itself wrote a line about a test.
func isFrame(text string) bool {
	return strings.HasPrefix(text, "=== ") || strings.HasPrefix(strings.TrimLeft(text, " "), "--- ")
}
