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
	// At is where: "nat/output", "nat hook output", "set outbound-exclude-v4", "routes"; of others, table, chain, hook and priority:
	// "ip nat/OUTPUT (hook output, priority -100)".
	At string
	// ID and Why are the part's in the plan; they are empty for what the plan does not have, or has no id for.
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
	// DriftForeign: somebody else has a rule that can change the outcome of packets in the plan's hooks.
	DriftForeign DriftKind = "foreign"
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
// none. It looks at content and order, not at ids and reasons, which a comment can claim; where nothing of a line is left but its
// comment, that says which line of the plan it was. Two ways to write one condition (a family beside an address of it, say) are the same.
// The members of live sets are not the plan's, and are not compared. A nil plan wants nothing.
//
// What no packet can tell is no difference: the order of two rules next to each other of which one is for IPv4 and one for IPv6; and
// whether a rule refers to a fixed set or has its members, when the state has no such set, as iptables has none.
//
// Behind these come the rules of others, where the state has them, that can change the outcome of packets in the hooks of the plan's
// entries: all that do more than to accept, to return and to log, wherever in the hook they are, and these too in the chains of a hook that
// are shared with the owner. For a plan that looks at what comes in
// or goes out, the chains of ingress and egress count as well.
func Diff(want *Plan, got State) []Drift {
	if want == nil {
		want = &Plan{Owner: got.Owner}
	}
	wanted, there := lists(withoutSets(want.Objects, got.Objects), nil), lists(got.Objects, got.Deviations)
	renamed(wanted, there)
	var drifts []Drift
	for _, w := range wanted {
		g, _ := find(there, w.at)
		drifts = append(drifts, compare(*w, *g)...)
	}
	for _, g := range there {
		if _, ok := find(wanted, g.at); !ok {
			drifts = append(drifts, compare(list{at: g.at, unordered: g.unordered}, *g)...)
		}
	}
	for _, d := range got.Deviations {
		if d.Object == nil {
			drifts = append(drifts, Drift{Kind: d.kind(), At: d.At, Want: d.Want, Got: d.Got})
		}
	}
	return append(drifts, foreign(want, got.Foreign)...)
}

func (d Deviation) kind() DriftKind {
	switch {
	case d.Want == "":
		return DriftExtra
	case d.Got == "":
		return DriftMissing
	default:
		return DriftChanged
	}
}

// withoutSets are objects whose rules have the members of those fixed sets that others do not have, though they have rules.
func withoutSets(objects, others []Object) []Object {
	if !slices.ContainsFunc(others, func(o Object) bool { _, is := o.(Table); return is }) {
		return objects
	}
	missing := map[SetName]PrefixSet{}
	for _, object := range objects {
		set, ok := object.(Set)
		there := slices.ContainsFunc(others, func(o Object) bool { other, ok := o.(Set); return ok && other.Name == set.Name })
		if ok && !set.Live && !there {
			missing[set.Name] = set.Members
		}
	}
	if len(missing) == 0 {
		return objects
	}
	var all []Object
	for _, object := range objects {
		switch o := object.(type) {
		case Set:
			if _, is := missing[o.Name]; is {
				continue
			}
		case Table:
			object = o.withMembers(missing)
		}
		all = append(all, object)
	}
	return all
}

// withMembers is the table with members in place of references to sets.
func (t Table) withMembers(sets map[SetName]PrefixSet) Table {
	t.Entries, t.Chains = slices.Clone(t.Entries), slices.Clone(t.Chains)
	for i := range t.Entries {
		t.Entries[i].Match = t.Entries[i].Match.withMembers(sets)
	}
	for i := range t.Chains {
		t.Chains[i].Rules = slices.Clone(t.Chains[i].Rules)
		for j := range t.Chains[i].Rules {
			t.Chains[i].Rules[j].Match = t.Chains[i].Rules[j].Match.withMembers(sets)
		}
	}
	return t
}

// withMembers is the match with members in place of references to sets, where there is room for them.
func (m Match) withMembers(sets map[SetName]PrefixSet) Match {
	place := func(prefixes *Condition[PrefixSet], ref *Condition[SetRef]) {
		members, missing := sets[ref.Set().Name]
		if ref.Present() && missing && !prefixes.Present() {
			*prefixes = Condition[PrefixSet]{set: members, present: true, negated: ref.Negated()}
			*ref = Condition[SetRef]{}
		}
	}
	place(&m.Src, &m.SrcSet)
	place(&m.Dst, &m.DstSet)
	return m
}
