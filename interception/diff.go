// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"fmt"
	"slices"
)

// Drift is one difference between a plan and a state.
type Drift struct {
	// Kind is what happened to the part.
	Kind DriftKind
	// At is where: "nat/output", "nat hook output", "set outbound-exclude-v4", "routes".
	At string
	// ID and Why are the part's in the plan; they are empty for what the plan does not have.
	ID  RuleID
	Why string
	// Want is the part as the plan has it, Got as it was observed; one of them is empty when there is nothing.
	Want, Got string
}

// DriftKind is the kind of a difference.
type DriftKind string

// The kinds.
const (
	// DriftMissing: the plan has the part, the namespace has not.
	DriftMissing DriftKind = "missing"
	// DriftMoved: the part is there, but not in its place among the others.
	DriftMoved DriftKind = "moved"
	// DriftChanged: another part stands in its place.
	DriftChanged DriftKind = "changed"
	// DriftExtra: the namespace has the part, the plan has not.
	DriftExtra DriftKind = "extra"
)

// String is the difference in one line.
func (d Drift) String() string {
	text := fmt.Sprintf("%s: %s", d.At, d.Kind)
	if d.ID != "" {
		text += fmt.Sprintf(" %s (%s)", d.ID, d.Why)
	}
	if d.Want != "" {
		text += ": want " + d.Want
	}
	if d.Got != "" {
		text += ": got " + d.Got
	}
	return text
}

// Diff compares what a namespace holds with the plan, and reports every difference, in the order of the plan; nil when there is
// none. It looks at content and order, not at ids and reasons, which a comment can claim. The members of live sets are not the
// plan's, and are not compared.
//
// What no packet can tell is no difference: the order of two rules next to each other of which one is for IPv4 and one for IPv6; and
// whether a rule refers to a fixed set or has its members, when the state has no such set, as iptables has none.
func Diff(want *Plan, got State) []Drift {
	wanted, there := lists(withoutSets(want.Objects, got.Objects)), lists(got.Objects)
	var drifts []Drift
	for _, w := range wanted {
		drifts = append(drifts, compare(w, find(there, w.at))...)
	}
	for _, g := range there {
		if !slices.ContainsFunc(wanted, func(w list) bool { return w.at == g.at }) {
			drifts = append(drifts, compare(list{at: g.at, unordered: g.unordered}, g)...)
		}
	}
	return drifts
}

// compare finds the differences between two lists of one place. What both have in common, in the longest order that both keep, stays;
// of the rest, a line that is in both has moved, and two lines between the same neighbours are one that was changed.
func compare(want, got list) []Drift {
	keptWant, keptGot := common(want, got)
	var drifts []Drift
	for i, j := 0, 0; i < len(want.lines) || j < len(got.lines); i, j = i+1, j+1 {
		wanted, found := loose(keptWant, i), loose(keptGot, j)
		drifts = append(drifts, gap(want, got, wanted, found, func(text string) bool {
			return want.looseHas(keptWant, text) && got.looseHas(keptGot, text)
		})...)
		i, j = i+len(wanted), j+len(found) // the line that is kept behind them is skipped by the loop
	}
	return drifts
}

// loose lists the indices from start on that are not kept, up to the first that is.
func loose(kept []bool, start int) (indices []int) {
	for i := start; i < len(kept) && !kept[i]; i++ {
		indices = append(indices, i)
	}
	return indices
}

// gap compares the lines between two that are kept. Those that stand loose in both lists have moved.
func gap(want, got list, wanted, found []int, inBoth func(text string) bool) []Drift {
	var drifts []Drift
	found = slices.DeleteFunc(found, func(j int) bool { return !got.unordered && inBoth(got.lines[j].text) }) // reported where wanted
	for _, i := range wanted {
		switch {
		case !want.unordered && inBoth(want.lines[i].text):
			drifts = append(drifts, want.drift(DriftMoved, i, want.lines[i].text))
		case len(found) > 0 && !want.unordered:
			drifts = append(drifts, want.drift(DriftChanged, i, got.lines[found[0]].text))
			found = found[1:]
		default:
			drifts = append(drifts, want.drift(DriftMissing, i, ""))
		}
	}
	for _, j := range found {
		drifts = append(drifts, Drift{Kind: DriftExtra, At: got.at, Got: got.lines[j].text})
	}
	return drifts
}

// drift is a difference about a line that is wanted.
func (l list) drift(kind DriftKind, i int, got string) Drift {
	return Drift{Kind: kind, At: l.at, ID: l.lines[i].id, Why: l.lines[i].why, Want: l.lines[i].text, Got: got}
}

// looseHas reports whether a line with the text is among those that are not kept.
func (l list) looseHas(kept []bool, text string) bool {
	for i, candidate := range l.lines {
		if !kept[i] && candidate.text == text {
			return true
		}
	}
	return false
}

// common marks the lines of both lists that belong to a longest common subsequence; where order does not count, all that are in both.
func common(want, got list) (keptWant, keptGot []bool) {
	keptWant, keptGot = make([]bool, len(want.lines)), make([]bool, len(got.lines))
	if want.unordered || got.unordered {
		places := map[string][]int{}
		for j, l := range got.lines {
			places[l.text] = append(places[l.text], j)
		}
		for i, l := range want.lines {
			if left := places[l.text]; len(left) > 0 {
				keptWant[i], keptGot[left[0]] = true, true
				places[l.text] = left[1:]
			}
		}
		return keptWant, keptGot
	}
	longest := longestCommon(want.lines, got.lines)
	for i, j := 0, 0; i < len(want.lines) && j < len(got.lines); {
		switch {
		case want.lines[i].text == got.lines[j].text:
			keptWant[i], keptGot[j] = true, true
			i, j = i+1, j+1
		case longest[i+1][j] >= longest[i][j+1]:
			i++
		default:
			j++
		}
	}
	return keptWant, keptGot
}

// longestCommon computes, for each pair of tails, how many lines they have in common in the same order.
func longestCommon(a, b []line) [][]int {
	table := make([][]int, len(a)+1)
	for i := range table {
		table[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i].text == b[j].text {
				table[i][j] = table[i+1][j+1] + 1
			} else {
				table[i][j] = max(table[i+1][j], table[i][j+1])
			}
		}
	}
	return table
}
