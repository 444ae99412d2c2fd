// SPDX-License-Identifier: Apache-2.0

package lower

import (
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// alternatives are the rules that together do what r does, in order, behind others; see [Chains].
func (r Rule) alternatives(rules []Rule) []Rule {
	if !r.Match.In.Present() && !r.Match.Out.Present() {
		return append(rules, r.steps()...)
	}
	matches := []interception.Match{r.Match}
	matches = split(matches, func(m *interception.Match) *interception.Condition[interception.InterfaceSet] { return &m.In })
	matches = split(matches, func(m *interception.Match) *interception.Condition[interception.InterfaceSet] { return &m.Out })
	for _, match := range matches {
		r.Match = match
		rules = append(rules, r.steps()...)
	}
	return rules
}

// split gives each pattern that a condition lists beside others a match of its own.
func split(
	matches []interception.Match, field func(*interception.Match) *interception.Condition[interception.InterfaceSet],
) []interception.Match {
	var all []interception.Match
	for _, m := range matches {
		c := *field(&m)
		names, patterns := InterfaceNames(c.Set())
		if c.Negated() || len(patterns) == 0 {
			all = append(all, m)
			continue
		}
		if len(names) > 0 {
			*field(&m) = interception.Is(interception.Interfaces(names...))
			all = append(all, m)
		}
		for _, pattern := range patterns {
			*field(&m) = interception.Is(interception.Interfaces(pattern))
			all = append(all, m)
		}
	}
	return all
}

// steps are r and what has to come before or behind it.
func (r Rule) steps() []Rule {
	switch r.Action.(type) {
	case interception.Reject:
		if r.Match.L4.Protocol() == interception.AnyProtocol {
			reset := r
			reset.Match.L4 = interception.TCP()
			return []Rule{reset, r}
		}
	case interception.TProxyTo:
		drop := r
		drop.Action = interception.Drop{}
		return []Rule{r, drop}
	}
	return []Rule{r}
}

// InterfaceNames are the names and the patterns of a set, each sorted.
func InterfaceNames(set interception.InterfaceSet) (names, patterns []interception.Interface) {
	for _, name := range set.Names() {
		if strings.HasSuffix(string(name), "*") {
			patterns = append(patterns, name)
		} else {
			names = append(names, name)
		}
	}
	return names, patterns
}
