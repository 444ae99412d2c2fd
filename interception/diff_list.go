// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"cmp"
	"slices"
)

// line is a part of a plan as text, with what the plan says about it.
type line struct {
	text string
	id   RuleID
	why  string
}

// list are the parts of one place. Where they are unordered, only their presence counts.
type list struct {
	at        string
	unordered bool
	lines     []line
}

func find(all []list, at string) list {
	i := slices.IndexFunc(all, func(l list) bool { return l.at == at })
	if i < 0 {
		return list{at: at}
	}
	return all[i]
}

// lists takes objects apart into lists of lines, one list for each place.
func lists(objects []Object) []list {
	var all []list
	add := func(at string, unordered bool, l ...line) {
		if i := slices.IndexFunc(all, func(known list) bool { return known.at == at }); i >= 0 {
			all[i].lines = append(all[i].lines, l...)
			return
		}
		all = append(all, list{at, unordered, l})
	}
	for _, object := range objects {
		switch o := object.(type) {
		case Link:
			add("links", true, line{o.text(), o.ID, o.Why})
		case Address:
			add("addresses", true, line{o.text(), o.ID, o.Why})
		case Sysctl:
			add("sysctls", true, line{o.text(), o.ID, o.Why})
		case Route:
			add("routes", true, line{o.text(), o.ID, o.Why})
		case PolicyRule:
			add("policy rules", true, line{o.text(), o.ID, o.Why})
		case Set:
			add("set "+string(o.Name), true, setLines(o)...)
		case Table:
			addTable(add, o)
		}
	}
	return all
}

func addTable(add func(at string, unordered bool, l ...line), t Table) {
	for _, hook := range Hooks() {
		var entries []Entry
		for _, e := range t.Entries {
			if e.Hook == hook {
				entries = append(entries, e)
			}
		}
		for _, e := range byFamily(entries, func(e Entry) Family { return e.Match.EffectiveFamily() }) {
			add(t.Kind.String()+" hook "+hook.String(), false, line{e.text(), e.ID, e.Why})
		}
	}
	for _, chain := range t.Chains {
		var rules []line
		for _, r := range byFamily(chain.Rules, func(r Rule) Family { return r.Match.EffectiveFamily() }) {
			rules = append(rules, line{conditions(r.Match, r.Action), r.ID, r.Why})
		}
		add(t.Kind.String()+"/"+string(chain.Name), false, rules...)
	}
}

// byFamily puts what is for IPv4 ahead of what is for IPv6 among neighbours that are for one family each: no packet meets both.
func byFamily[T any](list []T, family func(T) Family) []T {
	sorted := slices.Clone(list)
	for start := 0; start < len(sorted); {
		end := start
		for end < len(sorted) && family(sorted[end]) != BothFamilies {
			end++
		}
		slices.SortStableFunc(sorted[start:end], func(a, b T) int { return cmp.Compare(family(a), family(b)) })
		start = end + 1
	}
	return sorted
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

// setLines are the set's kind and its members one by one, so that a difference names the member.
func setLines(s Set) []line {
	kind := "fixed set of " + s.Family.String()
	if s.Live {
		kind = "live set of " + s.Family.String()
	}
	l := []line{{kind, "", s.Why}}
	for _, prefix := range s.Members.Prefixes() {
		l = append(l, line{prefix.String(), "", s.Why})
	}
	return l
}
