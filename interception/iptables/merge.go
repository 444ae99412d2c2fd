// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

var errApart = errors.New("the lines are not of one rule")

// merged returns the match of all lines, which have one action and differ in members of sets.
func (f folder) merged(lines []line) (interception.Match, interception.Action, error) {
	if slices.ContainsFunc(lines, func(l line) bool { return l.below != nil }) {
		return f.mergedSorted(lines)
	}
	var rules, resets []decoded
	for _, l := range lines {
		d, err := decode(l.words, l.family, f.prefix)
		if err != nil {
			return interception.Match{}, nil, err
		}
		if d.reset {
			resets = append(resets, d)
		} else {
			rules = append(rules, d)
		}
	}
	if len(rules) == 0 { // otherwise a reset accompanies the answer to all but TCP
		rules = resets
	}
	match, err := joined(rules)
	return match, rules[0].action, err
}

// mergedSorted is merged for lines that lead to sorting chains, separately for each family.
func (f folder) mergedSorted(lines []line) (match interception.Match, action interception.Action, err error) {
	for _, family := range families() {
		own := slices.DeleteFunc(slices.Clone(lines), func(l line) bool { return l.family != family })
		if len(own) == 0 {
			continue
		}
		m, a, err := f.unsorted(own)
		switch {
		case err != nil:
			return m, a, err
		case action == nil:
			match, action = m, a
		case action != a:
			return m, a, errApart
		default:
			if err := join(&match, m); err != nil {
				return m, a, err
			}
		}
	}
	return match, action, nil
}

// joined joins halves, so that it does not copy large sets for each member.
func joined(rules []decoded) (interception.Match, error) {
	if len(rules) == 1 {
		return rules[0].match, nil
	}
	half := len(rules) / 2
	match, err := joined(rules[:half])
	if err != nil {
		return match, err
	}
	other, err := joined(rules[half:])
	if err != nil {
		return match, err
	}
	if rules[0].action != rules[half].action {
		return match, errApart
	}
	err = join(&match, other)
	return match, err
}

// join adds the members of another match's sets.
func join(m *interception.Match, n interception.Match) error {
	sameL4 := m.L4.Protocol() == n.L4.Protocol() && m.L4.TCPFlags() == n.L4.TCPFlags()
	if !sameL4 || m.Mark != n.Mark || m.ConnMark != n.ConnMark || m.State != n.State || m.Direction != n.Direction ||
		m.SrcSet != n.SrcSet || m.DstSet != n.DstSet {
		return errApart
	}
	src, err := union(m.L4.SrcPort(), n.L4.SrcPort(), interception.PortSet.Union, interception.PortSet.Equal)
	dst, err2 := union(m.L4.DstPort(), n.L4.DstPort(), interception.PortSet.Union, interception.PortSet.Equal)
	errs := []error{err, err2}
	m.L4 = withPorts(m.L4, src, dst)
	m.Src, err = union(m.Src, n.Src, interception.PrefixSet.Union, interception.PrefixSet.Equal)
	m.Dst, err2 = union(m.Dst, n.Dst, interception.PrefixSet.Union, interception.PrefixSet.Equal)
	errs = append(errs, err, err2)
	m.In, err = union(m.In, n.In, bothInterfaces, interception.InterfaceSet.Equal)
	m.Out, err2 = union(m.Out, n.Out, bothInterfaces, interception.InterfaceSet.Equal)
	errs = append(errs, err, err2)
	m.UID, err = union(m.UID, n.UID, interception.UIDSet.Union, interception.UIDSet.Equal)
	m.GID, err2 = union(m.GID, n.GID, interception.GIDSet.Union, interception.GIDSet.Equal)
	return errors.Join(append(errs, err, err2)...)
}

func bothInterfaces(a, b interception.InterfaceSet) interception.InterfaceSet {
	return interception.Interfaces(append(a.Names(), b.Names()...)...)
}

// union returns the condition that one of two is met. Exclusions have to exclude the same.
func union[S interception.Operand](
	a, b interception.Condition[S], both func(S, S) S, equal func(S, S) bool,
) (interception.Condition[S], error) {
	switch {
	case a.Present() != b.Present() || a.Negated() != b.Negated():
		return a, errApart
	case !a.Present() || equal(a.Set(), b.Set()):
		return a, nil
	case a.Negated():
		return a, errApart
	}
	return interception.Is(both(a.Set(), b.Set())), nil
}

// candidates returns the matches that may be rendered as lines: iptables has one form for several.
func candidates(m interception.Match, lines []line, alone bool) []interception.Match {
	matches := []interception.Match{m}
	vary := func(change func(*interception.Match) bool) {
		for _, match := range matches {
			if change(&match) {
				matches = append(matches, match)
			}
		}
	}
	if family := familyOf(lines); family != interception.BothFamilies {
		whole := interception.Is(interception.AllPrefixes().Of(family))
		if matches[0].Family = family; m.Src.Present() || m.Dst.Present() {
			matches = []interception.Match{m, matches[0]}
		} else if alone {
			matches = append(matches, m)
		}
		vary(func(m *interception.Match) bool { present := m.Dst.Present(); m.Dst = whole; return !present })
		vary(func(m *interception.Match) bool { present := m.Src.Present(); m.Src = whole; return !present })
		vary(func(m *interception.Match) bool {
			named := m.Family != 0
			m.Family = 0
			return named && m.EffectiveFamily() != 0
		})
	}
	if m.L4.Protocol() != interception.AnyProtocol {
		vary(func(m *interception.Match) bool {
			return otherPorts(m, m.L4.DstPort(), interception.L4.To, interception.L4.NotTo)
		})
		vary(func(m *interception.Match) bool {
			return otherPorts(m, m.L4.SrcPort(), interception.L4.From, interception.L4.NotFrom)
		})
	}
	return matches
}

func familyOf(lines []line) interception.Family {
	for _, l := range lines {
		if l.family != lines[0].family {
			return interception.BothFamilies
		}
	}
	return lines[0].family
}

// otherPorts writes the same condition on a port in another form: no condition as all ports, and a
// range at an end as the exclusion of the rest.
func otherPorts(
	m *interception.Match, c interception.Condition[interception.PortSet], is, not func(interception.L4, interception.PortSet) interception.L4,
) bool {
	ranges := c.Set().Ranges()
	switch {
	case !c.Present():
		m.L4 = is(m.L4, interception.AllPorts())
	case c.Negated() || len(ranges) != 1:
		return false
	case ranges[0].First == 0 && ranges[0].Last < ^interception.Port(0):
		m.L4 = not(m.L4, interception.PortRange(ranges[0].Last+1, ^interception.Port(0)))
	case ranges[0].First > 0 && ranges[0].Last == ^interception.Port(0):
		m.L4 = not(m.L4, interception.PortRange(0, ranges[0].First-1))
	default:
		return false
	}
	return true
}
