// SPDX-License-Identifier: Apache-2.0

package interception

import "slices"

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
