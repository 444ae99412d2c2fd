// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"slices"
)

// change returns the lines for iptables-restore --noflush that bring the owner's part of a table to
// the wanted one, and the table afterwards; no lines when nothing differs. It refills chains that
// differ, keeps jumps that are in place, and removes what the wanted table lacks. The kernel
// commits all lines of a table or none.
func (t table) change(to table) ([]string, table) {
	var declared, filled, emptied, deleted, removed, added []string
	for _, c := range to.chains {
		if have, there := t.chain(c.name); there && slices.Equal(have.rules, c.rules) {
			continue
		}
		declared = append(declared, ":"+c.name+" - [0:0]") // which also empties an existing chain
		for _, rule := range c.rules {
			filled = append(filled, "-A "+c.name+" "+rule)
		}
	}
	for _, c := range t.chains {
		if _, wanted := to.chain(c.name); !wanted {
			emptied = append(emptied, "-F "+c.name)
			deleted = append(deleted, "-X "+c.name)
		}
	}
	after := table{chains: to.chains, strangers: t.strangers}
	for _, name := range hookNames(t, to) {
		less, more, h := t.hook(name).change(to.hook(name))
		removed, added = append(removed, less...), append(added, more...)
		after.hooks = append(after.hooks, h)
	}
	return slices.Concat(declared, removed, filled, added, emptied, deleted), after
}

func hookNames(tables ...table) []string {
	var names []string
	for _, t := range tables {
		for _, h := range t.hooks {
			if !slices.Contains(names, h.name) {
				names = append(names, h.name)
			}
		}
	}
	return names
}

// change removes what is wrong in a hook, adds what is missing, and returns the hook's rules
// afterwards. Jumps in the right order stay, whatever rules are between them.
func (h hook) change(to hook) (removed, added []string, after hook) {
	wanted := to.owned()
	if h.sameJumps(to) {
		return nil, nil, h
	}
	kept := h.kept(wanted)
	after = hook{name: h.name}
	for _, r := range h.rules {
		if r.owned && !slices.Contains(kept, r.text) {
			removed = append(removed, "-D "+h.name+" "+r.text)
			continue
		}
		after.rules = append(after.rules, r)
	}
	for i, r := range wanted {
		if slices.Contains(kept, r.text) {
			continue
		}
		at := after.place(wanted, i, kept)
		// Not all rules of the hook may be known: the first ones go in by their number.
		if at == len(after.rules) && !r.first {
			added = append(added, "-A "+h.name+" "+r.text)
		} else {
			added = append(added, fmt.Sprintf("-I %s %d %s", h.name, at+1, r.text))
		}
		r.owned = true
		after.rules = slices.Insert(after.rules, at, r)
		kept = append(kept, r.text)
	}
	return removed, added, after
}

// kept returns the jumps that can stay where they are: those that occur once, in the wanted order.
func (h hook) kept(wanted []hookRule) []string {
	var kept []string
	last := -1
	for _, r := range h.owned() {
		copies := 0
		for _, other := range h.owned() {
			if other.text == r.text {
				copies++
			}
		}
		i := slices.IndexFunc(wanted, func(w hookRule) bool { return w.text == r.text })
		if copies == 1 && i > last {
			kept, last = append(kept, r.text), i
		}
	}
	return kept
}

// place returns the index at which a wanted jump goes into the hook: next to another jump of its
// kind, if there is one, otherwise at either end.
func (h hook) place(wanted []hookRule, i int, kept []string) int {
	r := wanted[i]
	index := func(text string) int {
		return slices.IndexFunc(h.rules, func(have hookRule) bool { return have.owned && have.text == text })
	}
	if r.place > 0 {
		return min(r.place-1, len(h.rules))
	}
	if i > 0 && wanted[i-1].first == r.first {
		return index(wanted[i-1].text) + 1
	}
	if r.first {
		return 0
	}
	for _, next := range wanted[i+1:] {
		if slices.Contains(kept, next.text) {
			return index(next.text)
		}
	}
	return len(h.rules)
}
