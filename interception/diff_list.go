// SPDX-License-Identifier: Apache-2.0

package interception

import "slices"

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
	var entries []line
	for _, e := range t.Entries {
		entries = append(entries, line{e.text(), e.ID, e.Why})
	}
	add(t.Kind.String()+" hooks", false, entries...)
	for _, chain := range t.Chains {
		var rules []line
		for _, r := range chain.Rules {
			rules = append(rules, line{conditions(r.Match, r.Action), r.ID, r.Why})
		}
		add(t.Kind.String()+"/"+string(chain.Name), false, rules...)
	}
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
