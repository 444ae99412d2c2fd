// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// event is one line of go test -json; see "go doc test2json".
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

type report struct {
	out      io.Writer
	packages map[string]*packageRun
	passed   int
	failed   int
	// skipped and failures are repeated at the end, where they are not overlooked.
	skipped  []string
	failures []string
}

func newReport(out io.Writer) *report {
	return &report{out: out, packages: map[string]*packageRun{}}
}

func (r *report) read(stream io.Reader) error {
	lines := bufio.NewReader(stream)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			r.line(line)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read go test's events: %w", err)
		}
	}
}

// line handles one line of the stream. The go command's own output, which is not an event, is
// passed on.
func (r *report) line(line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		r.print(string(line))
		return
	}
	switch {
	case e.Action == "build-output":
		r.print(e.Output)
	case e.Package == "":
	case e.Test == "" && isEnd(e.Action):
		r.endPackage(e.Package, e.Action)
	default:
		r.packageRun(e.Package).add(e)
	}
}

func isEnd(action string) bool {
	return slices.Contains([]string{"pass", "fail", "skip"}, action)
}

func (r *report) packageRun(name string) *packageRun {
	run, ok := r.packages[name]
	if !ok {
		run = &packageRun{results: map[string]string{}}
		r.packages[name] = run
	}
	return run
}

// endPackage prints a package that has ended and counts its tests.
func (r *report) endPackage(name, action string) {
	run := r.packageRun(name)
	delete(r.packages, name)
	failedBefore := r.failed
	for _, test := range run.tests {
		switch run.results[test] {
		case "pass":
			r.passed++
		case "skip":
			r.skipped = append(r.skipped, fmt.Sprintf("%s %s: %s", name, test, run.reason(test)))
		case "fail":
			r.failure(name+" "+test, run.last(test)...)
		default:
			r.failure(name+" "+test+" (did not end)", run.last(test)...)
		}
	}
	if action == "fail" && r.failed == failedBefore {
		r.failure(name)
	}
	run.print(r.out, action == "fail")
}

// failure notes what has failed, and what it said.
func (r *report) failure(what string, said ...string) {
	r.failed++
	r.failures = append(r.failures, "failed: "+what+"\n"+strings.Join(said, ""))
}

// close prints the summary and reports whether the run is good enough.
func (r *report) close() bool {
	for _, name := range slices.Sorted(maps.Keys(r.packages)) {
		r.endPackage(name, "fail")
	}
	for _, failure := range r.failures {
		r.print(failure)
	}
	for _, skip := range r.skipped {
		r.print("skipped: " + skip + "\n")
	}
	if len(r.skipped) > 0 {
		r.print("no test may be skipped: install what it needs, or take it out\n")
	}
	if r.passed == 0 {
		r.print("no test passed\n")
	}
	r.print(fmt.Sprintf("%d passed, %d failed, %d skipped\n", r.passed, r.failed, len(r.skipped)))
	return r.passed > 0 && r.failed == 0 && len(r.skipped) == 0
}

// print writes to the standard output. A write error does not change the exit code.
func (r *report) print(text string) {
	_, _ = io.WriteString(r.out, text)
}

func oneLine(text string) string {
	return strings.Join(strings.Fields(text), " ")
}
