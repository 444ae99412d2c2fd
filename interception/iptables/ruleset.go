// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// prefix begins the names of an owner's chains, and of no other owner's, as in package render.
func prefix(owner interception.Owner) string { return strings.ToUpper(string(owner)) + "_" }

// ruleset is what the tables of one family have, or are to have, of one owner.
type ruleset map[interception.TableKind]table

// table is what one table has of the owner.
type table struct {
	chains []chain
	hooks  []hook
	// strangers are rules of other programs that lead into the owner's chains.
	strangers []string
}

type chain struct {
	name  string
	rules []string
}

// hook is a chain of the kernel, with all its known rules.
type hook struct {
	name  string
	rules []hookRule
}

// hookRule is a rule of a hook. Those that lead into a chain of the owner belong to the owner.
type hookRule struct {
	text  string
	owned bool
	first bool // goes before other programs' rules
	place int  // its position, from 1; 0 if unknown
}

// owned returns the owner's part of a listing. Comments do not count.
func (l listing) owned(prefix string) ruleset {
	set := ruleset{}
	for _, listed := range l.tables {
		kind, known := kindOf(listed.name)
		if !known {
			continue
		}
		t := set[kind]
		for _, c := range listed.chains {
			t.take(c, prefix)
		}
		set[kind] = t
	}
	return set
}

func (t *table) take(c listedChain, prefix string) {
	switch {
	case c.kernel:
		h := hook{name: c.name}
		for i, r := range c.rules {
			h.rules = append(h.rules, hookRule{text: r.text, owned: r.leadsTo(prefix), first: r.insert, place: i + 1})
		}
		t.hooks = append(t.hooks, h)
	case strings.HasPrefix(c.name, prefix):
		own := chain{name: c.name}
		for _, r := range c.rules {
			own.rules = append(own.rules, r.text)
		}
		t.chains = append(t.chains, own)
	default:
		for _, r := range c.rules {
			if r.leadsTo(prefix) {
				t.strangers = append(t.strangers, "-A "+c.name+" "+r.text)
			}
		}
	}
}

// planned parses a text of package render. It has the order of jumps, not their positions.
func planned(text, prefix string) (ruleset, error) {
	l, err := parseListing(text)
	if err != nil {
		return nil, fmt.Errorf("read the rendered plan: %w", err)
	}
	set := l.owned(prefix)
	for _, t := range set {
		for _, h := range t.hooks {
			for i := range h.rules {
				h.rules[i].place = 0
			}
		}
	}
	return set, nil
}

func (s ruleset) isEmpty() bool {
	for _, t := range s {
		if len(t.chains) > 0 || t.leadsIn() {
			return false
		}
	}
	return true
}

func (s ruleset) with(kind interception.TableKind, t table) ruleset {
	other := ruleset{}
	maps.Copy(other, s)
	other[kind] = t
	return other
}

// leadsIn reports whether a hook leads into the chains of any table.
func (s ruleset) leadsIn() bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(s)), table.leadsIn)
}

// leadsIn reports whether a hook leads into the table's chains.
func (t table) leadsIn() bool {
	return slices.ContainsFunc(t.hooks, func(h hook) bool { return len(h.owned()) > 0 })
}

func (t table) chain(name string) (chain, bool) {
	i := slices.IndexFunc(t.chains, func(c chain) bool { return c.name == name })
	if i < 0 {
		return chain{}, false
	}
	return t.chains[i], true
}

// hook returns what is known of a hook; without rules if that is nothing.
func (t table) hook(name string) hook {
	i := slices.IndexFunc(t.hooks, func(h hook) bool { return h.name == name })
	if i < 0 {
		return hook{name: name}
	}
	return t.hooks[i]
}

func (h hook) owned() []hookRule {
	var rules []hookRule
	for _, r := range h.rules {
		if r.owned {
			rules = append(rules, r)
		}
	}
	return rules
}

// sameJumps reports whether both have the same rules of the owner in the same order.
func (h hook) sameJumps(other hook) bool {
	return slices.EqualFunc(h.owned(), other.owned(), func(a, b hookRule) bool { return a.text == b.text })
}

func (t table) lines() []string {
	var lines []string
	for _, c := range t.chains {
		lines = append(lines, c.rules...)
	}
	for _, h := range t.hooks {
		for _, r := range h.owned() {
			lines = append(lines, r.text)
		}
	}
	return lines
}
