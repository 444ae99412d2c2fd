// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net/netip"
	"path"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/meshcni/meshcni/interception"
)

// row is one connection: what was expected, and what happened.
type row struct {
	// group is the heading above the row, if the row before has another one.
	group string
	probe probe
	want  expectation
	got   ending
	// skipped is the reason why the connection was not made; got is then empty.
	skipped string
}

// agrees reports whether the kernel did what was expected. It is false for a skipped row, and for a
// captured connection without an answer, even if that was expected: the proxy has no listener for
// it.
func (r row) agrees() bool {
	return r.skipped == "" && r.got == r.want.ending && !r.unserved()
}

func (r row) unserved() bool { return r.want.captured && r.got.failure != "" }

func (r row) verdict() string {
	switch {
	case r.skipped != "":
		return r.skipped
	case r.agrees():
		return "✓ agree"
	case r.unserved():
		return "✗ CAPTURED, AND NOT ANSWERED"
	default:
		return "✗ DISAGREE"
	}
}

// expected omits the original destination if it is the address that was connected to, as it should
// be, and the client if it is the one that the listener saw.
func (r row) expected() string {
	e := r.want.ending
	if e.original == r.probe.destination {
		e.original = netip.AddrPort{}
	}
	if e.client == r.got.client {
		e.client = netip.Addr{}
	}
	return e.String()
}

// happened always shows the original destination, because a proxy depends on it.
func (r row) happened() string {
	if r.skipped != "" {
		return "-"
	}
	return r.got.String()
}

// because returns the deciding rule, its reason, and the part of the pod that made it. If both the
// mesh and the pod asked for the rule, it shows both.
func (r row) because() string {
	if r.want.rule == "" {
		return "no rule decides"
	}
	text := fmt.Sprintf("%s: %s", r.want.rule, r.want.why)
	annotated := slices.ContainsFunc(r.want.from, func(s interception.Source) bool { return s.Kind == interception.SourceAnnotation })
	for _, source := range r.want.from {
		if !annotated || source.Kind == interception.SourceDefault {
			continue // a default of the mesh, which the reason names
		}
		text += fmt.Sprintf(" (%s=%q)", path.Base(source.Key), source.Value)
	}
	return text
}

// table is the result of the demonstration.
type table []row

// disagreements returns the rows in which the kernel did not do what was expected.
func (t table) disagreements() []row {
	var rows []row
	for _, r := range t {
		if r.skipped == "" && !r.agrees() {
			rows = append(rows, r)
		}
	}
	return rows
}

func (t table) summary() string {
	agreed, wrong := 0, len(t.disagreements())
	for _, r := range t {
		if r.agrees() {
			agreed++
		}
	}
	text := fmt.Sprintf("%d connections: %d as expected", len(t), agreed)
	if wrong > 0 {
		text += fmt.Sprintf(", %d NOT", wrong)
	}
	if skipped := len(t) - agreed - wrong; skipped > 0 {
		text += fmt.Sprintf(", %d not made (taken from the trace alone)", skipped)
	}
	return text
}

// write prints each row as a line with the connection, what was expected and what the kernel did,
// followed by the rule that decides. A group of rows begins with its name.
func (t table) write(w io.Writer) {
	var text strings.Builder
	columns := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(columns, "CONNECTION\tTO\tTRACE EXPECTS\tTHE KERNEL DID\t")
	for _, r := range t {
		fmt.Fprintf(columns, "%s\t%s\t%s\t%s\t%s\n", r.probe, r.probe.destination, r.expected(), r.happened(), r.verdict())
	}
	_ = columns.Flush() // a strings.Builder takes everything
	group := ""
	for i, line := range strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n") {
		if i > 0 && t[i-1].group != group {
			group = t[i-1].group
			fmt.Fprintf(w, "  %s:\n", group)
		}
		fmt.Fprintf(w, "  %s\n", strings.TrimRight(line, " "))
		if i > 0 {
			fmt.Fprintf(w, "      %s\n", t[i-1].because())
		}
	}
}
