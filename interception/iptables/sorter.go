// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// A rule that excludes more than a line can say has chains of its own, with numbers for names: one that sorts out what it is not about and,
// where the rule returns, one with the rest of the rules, to which -g leads. sorted stands for their names.
const sorted = "*"

// sorters read the lines of one family's table with the chains that sort out below them.
type sorters struct {
	prefix string
	family interception.Family
	table  table
	// read are the chains with numbers that were found below a line, or behind one.
	read map[string]bool
}

// chain are the rules of a chain that no plan has a name for, the first time that they are asked for.
func (s sorters) chain(name string) ([]string, bool) {
	c, there := s.table.chain(name)
	if !there || s.read[name] || !isNumbered(name, s.prefix) {
		return nil, false
	}
	return c.rules, true
}

// unread are the rules of a chain that is there and no part of a rule that was read.
func (s sorters) unread(name string) ([]string, bool) {
	c, there := s.table.chain(name)
	return c.rules, there && !s.read[name]
}

// isNumbered reports whether a chain of the owner's has a number for a name.
func isNumbered(name, prefix string) bool {
	number, ok := strings.CutPrefix(name, prefix)
	return ok && number != "" && strings.Trim(number, "0123456789") == ""
}

// lines are those of a chain, and of the chains with the rest of its rules.
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

// rest is the chain with the rest of the rules, when the last one leads there.
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

// sortedOut are the words of the rules of a chain that sorts out. What they leave alone goes where the rest of the rules is.
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

// tail is how a rule ends: the option and its target.
func tail(words []string) (option, target string) {
	if len(words) < 2 {
		return "", ""
	}
	return words[len(words)-2], words[len(words)-1]
}

// aboutAndEnd are the lines that say what a rule is about, and how the others end in the chain that sorts out: where the rule returns, what
// it is not about goes on with the rest of the rules. It is false when they are no such lines.
func aboutAndEnd(lines []line) (about []line, end string, ok bool) {
	if option, _ := tail(lines[0].words); option != "-g" {
		return lines, "-j RETURN", len(lines[0].below) > 1
	}
	last := len(lines) - 1
	ok = last > 0 && lines[last].below == nil && slices.Equal(lines[last].words, []string{"-g", sorted})
	return lines[:last], "-g " + sorted, ok && len(lines[0].below) > 1
}

// unsorted is the rule of a plan that lines of one family are, of which one leads to a chain that sorts out.
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

// asked is what a line asks for, wherever it leads.
func (f folder) asked(words []string, family interception.Family) (decoded, error) {
	if len(words) < 2 {
		return decoded{}, errApart
	}
	return decode(slices.Concat(words[:len(words)-2], []string{"-j", "RETURN"}), family, f.prefix)
}

// exclude takes what rules are about, each by one condition, out of a match.
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
	if someSocket && (out.UID.Present() || out.GID.Present()) { // that it has an owner goes without saying
		m.UID = interception.Condition[interception.UIDSet]{}
	}
	errs = append(errs,
		subtract(&m.Src, out.Src, interception.PrefixSet.Union), subtract(&m.Dst, out.Dst, interception.PrefixSet.Union),
		subtract(&m.In, out.In, bothInterfaces), subtract(&m.Out, out.Out, bothInterfaces),
		subtract(&m.UID, out.UID, interception.UIDSet.Union), subtract(&m.GID, out.GID, interception.GIDSet.Union),
	)
	return errors.Join(errs...)
}

// add adds to what is left out.
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

// subtract makes a condition exclude what is left out.
func subtract[S interception.Operand](c *interception.Condition[S], out interception.Condition[S], both func(S, S) S) error {
	switch {
	case !out.Present():
	case !c.Present():
		*c = interception.Not(out.Set())
	case c.Negated():
		*c = interception.Not(both(c.Set(), out.Set()))
	default:
		return errApart
	}
	return nil
}
