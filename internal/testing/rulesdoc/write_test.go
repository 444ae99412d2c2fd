// SPDX-License-Identifier: Apache-2.0

package rulesdoc

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/internal/testing/sample"
)

// writer writes the document, section by section.
type writer struct {
	*document
	bytes.Buffer
}

func (w *writer) line(format string, arguments ...any) {
	fmt.Fprintf(&w.Buffer, format+"\n", arguments...)
}

// write writes the whole document.
func (d *document) write() ([]byte, error) {
	w := &writer{document: d}
	w.line("%s\n", w.head)
	w.keys()
	last := ""
	for _, table := range []interception.TableKind{0, interception.Raw, interception.Mangle, interception.NAT} {
		for _, g := range d.groups {
			if g.part.place.table != table {
				continue
			}
			if title := chapter(g.part.place); title != last {
				last = title
				if err := w.contents(title, g); err != nil {
					return nil, err
				}
			}
			if err := w.section(g); err != nil {
				return nil, fmt.Errorf("%s: %w", g.base, err)
			}
		}
	}
	return []byte(wrapped(strings.TrimRight(w.String(), "\n") + "\n")), nil
}

// wrapped breaks the lines of prose that have more than 100 columns.
func wrapped(markdown string) string {
	const columns = 100
	var out strings.Builder
	code := false
	for line := range strings.Lines(markdown) {
		code = code != strings.HasPrefix(line, "```")
		indent := ""
		if strings.HasPrefix(line, "- ") {
			indent = "  "
		}
		for !code && !strings.HasPrefix(line, "|") && utf8.RuneCountInString(line) > columns+len("\n") {
			end := strings.LastIndexByte(string([]rune(line)[:columns+1]), ' ')
			if end <= len(indent) {
				break
			}
			out.WriteString(line[:end] + "\n")
			line = indent + line[end+1:]
		}
		out.WriteString(line)
	}
	return out.String()
}

// keys writes which key of an Istio pod sets which parameter.
func (w *writer) keys() {
	w.line("## What sets what\n\nThe conditions below speak of the fields of `sidecar.Redirect`. In Istio's pods these keys set them:\n")
	w.line("| field | set by | when it is absent |\n|---|---|---|")
	for _, field := range sidecar.Istio().Fields {
		value := "`" + field.Default + "`"
		if field.Default == "" {
			value = "empty"
		}
		w.line("| `%s` | %s `%s` | %s |", field.Parameter, field.Kind, strings.Join(field.Keys, "`, formerly `"), value)
	}
	w.line("\n`Facts.IPv6` says whether the kernel has IPv6 enabled in the pod's namespace. A field without a key is the same for all of " +
		"Istio's pods, or is for other meshes and for callers that make a `Redirect` by hand.\n")
}

// chapter returns the title of the chapter that a part belongs to.
func chapter(p place) string {
	if p.table == 0 {
		return "Beside the rules"
	}
	return fmt.Sprintf("Table %s, chain %s", p.table, p.chain)
}

// contents begins a chapter with its contents, in order.
func (w *writer) contents(title string, first group) error {
	w.line("## %s\n", title)
	if table := first.part.place.table; table != 0 {
		nft, iptables, err := w.chains(first)
		if err != nil {
			return err
		}
		w.line("In nf_tables chain `%s`, in iptables chain `%s` of table %s. Rules are asked in this order:\n", nft, iptables, table)
	}
	w.line("| | why it is there |\n|---|---|")
	for _, g := range w.groups {
		if chapter(g.part.place) == title {
			w.line("| [%s](#%s) | %s |", g.base, anchor(g.base), g.part.why)
		}
	}
	w.line("")
	return nil
}

// chains returns the names in the kernel of the chain that holds a group's rules, or that its jump
// leads to.
func (w *writer) chains(g group) (nft, iptables string, err error) {
	id := g.ids[0]
	shown, err := renderingOf(w.makePlan(w.examples(g)[0].at))
	if err != nil {
		return "", "", err
	}
	if g.part.place.kind == "rule" {
		return shown.nft.chains[id], shown.iptables4.chains[id], nil
	}
	return lastWord(shown.nft.lines[id][0]), lastWord(shown.iptables4.lines[id][0]), nil
}

func lastWord(line string) string { return line[strings.LastIndexByte(line, ' ')+1:] }

// anchor returns the link target of a heading.
func anchor(id interception.RuleID) string {
	return strings.ToLower(strings.NewReplacer(".", "", "@", "").Replace(string(id)))
}

// section writes the section of one group.
func (w *writer) section(g group) error {
	w.line("### %s\n", g.base)
	what := map[string]string{
		"rule": "A rule.", "entry": "The jump from hook " + g.part.place.hook.String() + ".", "set": "A set.",
		"address": "An address.", "route": "A route.", "policy rule": "A rule of policy routing.",
	}[g.part.place.kind]
	w.line("%s Why: *%s*.%s\n\n%s\n", what, g.part.why, w.madeFrom(g), w.texts[g.base])
	if err := w.conditions(g); err != nil {
		return err
	}
	examples := w.examples(g)
	for _, x := range examples {
		if err := w.example(x); err != nil {
			return err
		}
	}
	w.changes(examples[0])
	w.cases(g)
	return nil
}

// madeFrom returns the parameters that a group's provenance names.
func (w *writer) madeFrom(g group) string {
	var keys []string
	for _, x := range w.examples(g) {
		for _, id := range x.ids {
			for _, source := range w.part(x.at, id).from {
				if key := "`" + source.Key + "`"; !slices.Contains(keys, key) {
					keys = append(keys, key)
				}
			}
		}
	}
	if len(keys) == 0 {
		return ""
	}
	slices.Sort(keys)
	return " Its provenance is that of " + strings.Join(keys, " and ") + "."
}

// conditions writes when the first of the group exists, and how the conditions of the others
// differ.
func (w *writer) conditions(g group) error {
	first, err := w.phrases(g.ids[0])
	if err != nil {
		return err
	}
	switch len(first) {
	case 0:
		w.line("`%s` is always there.\n", g.ids[0])
	case 1:
		w.line("`%s` is there when %s.\n", g.ids[0], first[0])
	default:
		w.line("`%s` is there when all of this holds:\n\n- %s\n", g.ids[0], strings.Join(first, "\n- "))
	}
	for _, id := range g.ids[1:] {
		phrases, err := w.phrases(id)
		if err != nil {
			return err
		}
		more, less := without(phrases, first), without(first, phrases)
		switch {
		case len(more)+len(less) == 0:
			w.line("`%s` is there whenever `%s` is.\n", id, g.ids[0])
		case len(less) == 0:
			w.line("`%s` is there when, besides, %s.\n", id, strings.Join(more, " and "))
		case len(more) == 0:
			w.line("`%s` is there whether or not %s.\n", id, strings.Join(less, " and "))
		default:
			w.line("For `%s`, it must hold that %s, rather than that %s.\n", id, strings.Join(more, " and "), strings.Join(less, " and "))
		}
	}
	return nil
}

func (w *writer) phrases(id interception.RuleID) ([]string, error) {
	c, err := w.learn(id, w.points)
	if err != nil {
		return nil, err
	}
	return w.say(c), nil
}

func without(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(text string) bool { return slices.Contains(other, text) })
}

// example is a point near the default that has some of a group's ids.
type example struct {
	at  sample.Point
	ids []interception.RuleID
}

// examples returns points that together show every id of a group, the first with as many as
// possible.
func (w *writer) examples(g group) []example {
	var examples []example
	for left := g.ids; len(left) > 0; {
		best := example{}
		for _, at := range w.points {
			ids := slices.DeleteFunc(slices.Clone(left), func(id interception.RuleID) bool { return !w.ask(at).has(id) })
			if len(ids) > len(best.ids) {
				best = example{at, ids}
			}
		}
		best.at = w.nearest(best.at, best.ids...)
		examples = append(examples, best)
		left = slices.DeleteFunc(slices.Clone(left), func(id interception.RuleID) bool { return slices.Contains(best.ids, id) })
	}
	return examples
}

// example writes the output of the tools.
func (w *writer) example(x example) error {
	shown, err := renderingOf(w.makePlan(x.at))
	if err != nil {
		return err
	}
	var with []string
	for i, parameter := range w.Parameters {
		if x.at[i] != 0 {
			with = append(with, sayValues(parameter, []int{x.at[i]}))
		}
	}
	if len(with) == 0 {
		w.line("In a pod that asks for nothing:\n")
	} else {
		w.line("When %s:\n", strings.Join(with, ", "))
	}
	w.line("```")
	for _, tool := range []struct {
		title string
		shows rendered
	}{{"nft", shown.nft}, {"iptables", shown.iptables4}, {"ip6tables", shown.iptables6}} {
		for _, id := range x.ids {
			for _, line := range tool.shows.lines[id] {
				if tool.shows.chains[id] == "" { // not of a chain, and only in the script for nft
					w.line("%s", strings.ReplaceAll(line, "\t", "    "))
				} else {
					w.line("%-10s %s", tool.title, line)
				}
			}
		}
	}
	w.line("```\n")
	return nil
}

// changes writes what else changes the first of an example's ids, in the terms of the plan.
func (w *writer) changes(x example) {
	id := x.ids[0]
	before := w.part(x.at, id).text()
	begun := false
	for i, parameter := range w.Parameters {
		for value := range parameter.Values {
			at := x.at.With(i, value)
			if !w.ask(at).has(id) {
				continue
			}
			after := w.part(at, id).text()
			if after == before {
				continue
			}
			if !begun {
				w.line("In the words of the plan, `%s` is `%s`. It changes when\n\n| | it is then |\n|---|---|", id, before)
				begun = true
			}
			w.line("| %s | `%s` |", sayValues(parameter, []int{value}), shortened(after))
		}
	}
	if begun {
		w.line("")
	}
}

// shortened returns the beginning of a long text.
func shortened(text string) string {
	const most = 110
	if len(text) <= most {
		return text
	}
	return text[:strings.LastIndexAny(text[:most], ", ")+1] + "..."
}

// cases returns the names of golden cases that have a part of the group.
func (w *writer) cases(g group) {
	var names []string
	for _, id := range g.ids {
		names = append(names, w.goldens[id]...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	const most = 4
	more := ""
	if len(names) > most {
		more = fmt.Sprintf(" and %d more", len(names)-most)
		names = names[:most]
	}
	w.line("Golden cases: %s%s.\n", strings.Join(names, ", "), more)
}
