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
	// At is the place: "nat/output", "nat hook output", "set outbound-exclude-v4", "routes". For
	// other programs' rules it is, for example, "ip nat/OUTPUT (hook output, priority -100)".
	At string
	// ID and Why come from the plan. They are empty where the plan has no part or no id.
	ID  RuleID
	Why string
	// Want is the part in the plan and Got the observed one. Missing and extra parts have one.
	Want, Got string
}

// DriftKind is the kind of a difference.
type DriftKind string

// The kinds.
const (
	// DriftMissing: the plan has the part, the namespace does not.
	DriftMissing DriftKind = "missing"
	// DriftMoved: the part is in the namespace, but at another place among the others.
	DriftMoved DriftKind = "moved"
	// DriftChanged: the namespace has another part in its place.
	DriftChanged DriftKind = "changed"
	// DriftExtra: the namespace has the part, the plan does not.
	DriftExtra DriftKind = "extra"
	// DriftForeign: another program's rule can change the outcome of packets in the plan's hooks, or
	// its route is in a routing table of the owner's own.
	DriftForeign DriftKind = "foreign"
)

// String returns the difference in one line.
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

// Diff compares what a namespace holds with the plan and returns every difference in the order of
// the plan, or nil. It compares content and order, not ids and reasons, which a comment can fake.
// Only where nothing but its comment identifies a line does the comment decide which line of the
// plan it was. Two spellings of one condition are equal (with and without the family that an
// address implies, say), and so are a mark that is copied and the same one written. Diff ignores
// the members of live sets, which do not belong to the plan. A nil plan wants nothing.
//
// A parameter of a link that the plan leaves to the kernel is no difference. What no packet can
// observe is none either: the order of two neighbouring rules, one for IPv4 and one for IPv6; and
// whether a rule refers to a fixed set or lists its members, when the state has no such set
// (iptables has none). Where hooks have no priorities (iptables), the order of the entries counts,
// and their Offset does not.
//
// Differences in other programs' rules come last, where the state has such rules. They are those
// that can change the outcome of packets in the hooks of the plan's entries: all rules that do more
// than accept, return or log, and in chains of a hook that are shared with the owner also accept
// and return. The ingress and egress hooks count when packets of the plan's hooks pass them. Before
// them come other programs' routes in routing tables of the owner's own, which every state has.
func Diff(want *Plan, got State) []Drift {
	if want == nil {
		want = &Plan{Owner: got.Owner}
	}
	objects := want.Objects
	if slices.ContainsFunc(got.Objects, func(o Object) bool { _, is := o.(Table); return is }) {
		objects = withoutSets(objects, got.Objects)
	}
	wanted := lists(objects, nil, taker{noPriorities: got.NoPriorities})
	there := lists(got.Objects, got.Deviations, taker{noPriorities: got.NoPriorities, links: linksOf(want)})
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
	case d.Foreign:
		return DriftForeign
	case d.Want == "":
		return DriftExtra
	case d.Got == "":
		return DriftMissing
	default:
		return DriftChanged
	}
}

// WithoutSets returns the plan with the members of its fixed sets in place of the references to
// them, as dataplanes without sets apply it.
func (p *Plan) WithoutSets() *Plan {
	return &Plan{Owner: p.Owner, Objects: withoutSets(p.Objects, nil)}
}

// withoutSets returns the objects with members in place of references to fixed sets that others
// lacks.
func withoutSets(objects, others []Object) []Object {
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

// withMembers returns the table with members in place of references to sets.
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

// withMembers returns the match with members for references to sets, unless it has literals too.
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
