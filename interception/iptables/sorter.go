// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// A rule that excludes more than a line can express has chains of its own, with numbers for names:
// a sorting chain that sorts out what the rule does not apply to and, where the rule returns, a
// chain with the rest of the rules, to which -g leads. In texts, sorted replaces their names.
const sorted = "*"

// sorters read the lines of one family's table with the sorting chains below them.
type sorters struct {
	prefix string
	family interception.Family
	table  table
	// read has the chains with numbers that were found below a line, or after one.
	read map[string]bool
}

// chain returns the rules of a chain with a number, unless it was read before.
func (s sorters) chain(name string) ([]string, bool) {
	c, there := s.table.chain(name)
	if !there || s.read[name] || !isNumbered(name, s.prefix) {
		return nil, false
	}
	return c.rules, true
}

// unread returns the rules of a chain that exists and is not part of a rule read before.
func (s sorters) unread(name string) ([]string, bool) {
	c, there := s.table.chain(name)
	return c.rules, there && !s.read[name]
}

func isNumbered(name, prefix string) bool {
	number, ok := strings.CutPrefix(name, prefix)
	return ok && number != "" && strings.Trim(number, "0123456789") == ""
}

// lines returns those of a chain, and of the chains with the rest of its rules.
func (s sorters) lines(rules []string) []line {
	var lines []line
	var used []string
	rest, more := s.rest(rules)
	for i, text := range rules {
		l := line{family: s.family, words: []string{text}}
		if words, err := splitWords(text); err == nil {
			l.words, l.comment = withoutComment(words)
		}
		option, target := tail(l.words)
		below, ok := s.chain(target)
		switch {
		case more && i == len(rules)-1:
			l.words = []string{"-g", sorted}
		case ok && (option == "-j" || option == "-g"):
			l.words = slices.Concat(l.words[:len(l.words)-1], []string{sorted})
			l.below = sortedOut(below, rest)
			used = append(used, target)
		}
		lines = append(lines, l)
	}
	for _, name := range used {
		s.read[name] = true
	}
	if more {
		further, _ := s.chain(rest)
		s.read[rest] = true
		lines = append(lines, s.lines(further)...)
	}
	return lines
}

// rest returns the chain with the rest of the rules, if the last rule leads to one.
func (s sorters) rest(rules []string) (name string, there bool) {
	if len(rules) < 2 {
		return "", false
	}
	words, err := splitWords(rules[len(rules)-1])
	if err != nil {
		return "", false
	}
	words, _ = withoutComment(words)
	option, name := tail(words)
	_, there = s.chain(name)
	return name, there && option == "-g" && len(words) == 2
}

// sortedOut returns the words of a sorting chain's rules. The other packets go to the rest.
func sortedOut(rules []string, rest string) [][]string {
	var lines [][]string
	for _, text := range rules {
		words, err := splitWords(text)
		if err != nil {
			words = []string{text}
		}
		words, _ = withoutComment(words)
		if option, target := tail(words); option == "-g" && target == rest {
			words[len(words)-1] = sorted
		}
		lines = append(lines, words)
	}
	return lines
}

// tail returns the end of a rule: the option and its target.
func tail(words []string) (option, target string) {
	if len(words) < 2 {
		return "", ""
	}
	return words[len(words)-2], words[len(words)-1]
}

// aboutAndEnd returns the lines that define what a rule applies to, and the end of the other lines
// in the sorting chain: if the rule returns, the packets that it does not apply to go to the rest
// of the rules. It returns false for other lines.
func aboutAndEnd(lines []line) (about []line, end string, ok bool) {
	if option, _ := tail(lines[0].words); option != "-g" {
		return lines, "-j RETURN", len(lines[0].below) > 1
	}
	last := len(lines) - 1
	ok = last > 0 && lines[last].below == nil && slices.Equal(lines[last].words, []string{"-g", sorted})
	return lines[:last], "-g " + sorted, ok && len(lines[0].below) > 1
}

// unsorted returns the rule of a plan for lines of one family that lead to a sorting chain.
func (f folder) unsorted(lines []line) (interception.Match, interception.Action, error) {
	lines, end, ok := aboutAndEnd(lines)
	if !ok {
		return interception.Match{}, nil, errApart
	}
	below := lines[0].below
	act, err := decode(below[len(below)-1], lines[0].family, f.prefix)
	if err != nil {
		return interception.Match{}, nil, err
	}
	var about, without []decoded
	for _, l := range lines {
		if !slices.EqualFunc(l.below, below, slices.Equal) {
			return interception.Match{}, nil, errApart
		}
		d, err2 := f.asked(l.words, l.family)
		about, err = append(about, d), errors.Join(err, err2)
	}
	for _, words := range below[:len(below)-1] {
		d, err2 := f.asked(words, lines[0].family)
		if option, target := tail(words); option+" "+target != end {
			err2 = errApart
		}
		without, err = append(without, d), errors.Join(err, err2)
	}
	if err != nil {
		return interception.Match{}, nil, err
	}
	match, err := joined(about)
	if err == nil {
		err = exclude(&match, without)
	}
	return match, act.action, err
}

// asked returns the conditions of a line, whatever its target.
func (f folder) asked(words []string, family interception.Family) (decoded, error) {
	if len(words) < 2 {
		return decoded{}, errApart
	}
	return decode(slices.Concat(words[:len(words)-2], []string{"-j", "RETURN"}), family, f.prefix)
}

// exclude excludes from a match what the rules match, each by one condition.
func exclude(m *interception.Match, rules []decoded) error {
	out := interception.Match{}
	var errs []error
	for _, r := range rules {
		errs = append(errs,
			add(&out.Src, r.match.Src, interception.PrefixSet.Union), add(&out.Dst, r.match.Dst, interception.PrefixSet.Union),
			add(&out.In, r.match.In, bothInterfaces), add(&out.Out, r.match.Out, bothInterfaces),
			add(&out.UID, r.match.UID, interception.UIDSet.Union), add(&out.GID, r.match.GID, interception.GIDSet.Union),
		)
	}
	someSocket := m.UID.Negated() && m.UID.Set().Equal(interception.UIDs(^interception.UID(0)))
	if someSocket && (out.UID.Present() || out.GID.Present()) { // such a condition implies an owner
		m.UID = interception.Condition[interception.UIDSet]{}
	}
	errs = append(errs,
		subtract(&m.Src, out.Src, interception.PrefixSet.Union), subtract(&m.Dst, out.Dst, interception.PrefixSet.Union),
		subtract(&m.In, out.In, bothInterfaces), subtract(&m.Out, out.Out, bothInterfaces),
		subtract(&m.UID, out.UID, interception.UIDSet.Union), subtract(&m.GID, out.GID, interception.GIDSet.Union),
	)
	return errors.Join(errs...)
}

func add[S interception.Operand](out *interception.Condition[S], c interception.Condition[S], both func(S, S) S) error {
	switch {
	case !c.Present():
	case c.Negated():
		return errApart
	case out.Present():
		*out = interception.Is(both(out.Set(), c.Set()))
	default:
		*out = c
	}
	return nil
}

// subtract makes a condition exclude what out has.
func subtract[S interception.Operand](c *interception.Condition[S], out interception.Condition[S], both func(S, S) S) error {
	if !out.Present() {
		return nil
	}
	return narrow(c, out.Set(), true, both)
}
