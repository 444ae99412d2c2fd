// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/meshcni/meshcni/interception"
)

// matchWidth is the width at which the text of a match is broken, if possible.
const matchWidth = 56

// Table returns the plan as text for people: first the objects that are not tables, then for each
// table of the plan its hooks with their jumps and its chains with their rules, in columns
// separated by at least two blanks. A long match is broken into several lines. Only the provenance
// of rules is missing; [interception.Plan.String] has it.
func Table(p *interception.Plan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "plan %s, fingerprint %s\n", p.Owner, p.Fingerprint())
	writeObjects(&b, p)
	for table := range p.Tables() {
		for _, hook := range table.Kind.Hooks() {
			var rows []row
			for _, e := range table.Entries {
				if e.Hook == hook {
					rows = append(rows, entryRow(e))
				}
			}
			if len(rows) > 0 {
				fmt.Fprintf(&b, "\n%s, hook %s\n", table.Kind, hook)
				writeRows(&b, append([]row{{"ENTRY", "MATCH", "ACTION", "WHY"}}, rows...))
			}
		}
		for _, chain := range table.Chains {
			fmt.Fprintf(&b, "\n%s, chain %s\n", table.Kind, chain.Name)
			rows := []row{{"RULE", "MATCH", "ACTION", "WHY"}}
			for _, r := range chain.Rules {
				rows = append(rows, row{string(r.ID), matchText(r.Match), actionText(r.Action), r.Why})
			}
			if len(rows) == 1 {
				rows = []row{{"no rules"}}
			}
			writeRows(&b, rows)
		}
	}
	return b.String()
}

// row is a line of a table. Only its second cell may be broken.
type row [4]string

func entryRow(e interception.Entry) row {
	action := interception.Jump{Chain: e.Chain}.String()
	if e.Offset != 0 {
		action += fmt.Sprintf(" (priority %+d)", e.Offset)
	}
	return row{string(e.ID), matchText(e.Match), action, e.Why}
}

func matchText(m interception.Match) string {
	if m.IsZero() {
		return "any"
	}
	return m.String()
}

func actionText(a interception.Action) string {
	if a == nil {
		return "none"
	}
	return a.String()
}

// writeObjects writes objects other than tables in the words of ip(8) and sysctl(8).
func writeObjects(b *strings.Builder, p *interception.Plan) {
	rows := []row{{"OBJECT", "WHAT", "", "WHY"}}
	for _, object := range p.Objects {
		switch o := object.(type) {
		case interception.Link:
			rows = append(rows, row{string(o.ID), fmt.Sprintf("link %s%s type %s", o.Name, linkOptions(o), linkType(o)), "", o.Why})
		case interception.Address:
			rows = append(rows, row{string(o.ID), fmt.Sprintf("address %s dev %s", o.Prefix, o.Device), "", o.Why})
		case interception.Sysctl:
			rows = append(rows, row{string(o.ID), fmt.Sprintf("sysctl net/%s = %d", o.Key, o.Value), "", o.Why})
		case interception.Route:
			rows = append(rows, row{string(o.ID), routeText(o), "", o.Why})
		case interception.PolicyRule:
			from := ""
			if !o.Source.IsValid() {
				from = " from all"
			}
			what := fmt.Sprintf("rule %s%s%s %s priority %d", o.Family, from, selectors(o), ruleTarget(o, "lookup"), o.Priority)
			rows = append(rows, row{string(o.ID), what, "", o.Why})
		case interception.Set:
			rows = append(rows, row{"@" + string(o.Name), setText(o), "", o.Why})
		}
	}
	if len(rows) > 1 {
		b.WriteByte('\n')
		writeRows(b, rows)
	}
}

func routeText(r interception.Route) string {
	words := fmt.Sprintf("route %s %s", r.Type, r.Destination)
	if r.Gateway.IsValid() {
		words += " via " + r.Gateway.String()
	}
	if r.Device != "" {
		words += " dev " + string(r.Device)
	}
	return words + routeOptions(r) + " table " + tableName(r.Table)
}

func setText(s interception.Set) string {
	if s.Live {
		if s.Addresses {
			return fmt.Sprintf("live set of %s addresses", s.Family)
		}
		return fmt.Sprintf("live set of %s", s.Family)
	}
	return fmt.Sprintf("set of %s: %s", s.Family, s.Members)
}

// writeRows writes rows with their columns aligned.
func writeRows(b *strings.Builder, rows []row) {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.DiscardEmptyColumns)
	for _, r := range rows {
		for i, line := range breakText(r[1], matchWidth) {
			if i > 0 {
				r = row{}
			}
			r[1] = line
			_, _ = fmt.Fprintf(w, "  %s\v\n", strings.Join(r[:], "\v"))
		}
	}
	_ = w.Flush() // a strings.Builder takes everything
	for line := range strings.Lines(text.String()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
}

// breakText breaks a text after blanks and commas into lines of width bytes, where it can.
func breakText(text string, width int) []string {
	var lines []string
	for len(text) > width {
		at := strings.LastIndexAny(text[:width], " ,")
		if at < 0 {
			at = strings.IndexAny(text, " ,")
		}
		if at < 0 || at == len(text)-1 {
			break
		}
		lines = append(lines, strings.TrimRight(text[:at+1], " "))
		text = text[at+1:]
	}
	return append(lines, text)
}
