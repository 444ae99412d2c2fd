// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
	"github.com/meshcni/meshcni/interception/render"
)

// folder converts the tables of both families back to the model of plans. One rule of a plan may be
// several in iptables: a copy for each family, and several lines where a line has no room for a
// list. Adjacent lines with the same comment may be such a rule; they are if rendering the rule
// made of them gives exactly these lines. All other lines become rules of one family.
type folder struct {
	owner  interception.Owner
	prefix string
	sets   []interception.Object // the owner's live sets
}

// line is a rule of the kernel with its family.
type line struct {
	family  interception.Family
	words   []string // without the comment
	comment string
	below   [][]string // the words of the sorting chain to which it leads
}

// group is a sequence of lines with one comment in a chain of one family, or one line without.
type group struct {
	comment string
	lines   []line
}

// text returns the line with the chain below it.
func (l line) text() string {
	text := strings.Join(l.words, " ")
	for _, words := range l.below {
		text += "; " + strings.Join(words, " ")
	}
	return text
}

// table returns a table of both families in the model; false when the owner has nothing in it.
func (f folder) table(kind interception.TableKind, v4, v6 table) (interception.Table, bool) {
	t := interception.Table{Kind: kind}
	sort4 := sorters{f.prefix, interception.IPv4, v4, map[string]bool{}}
	sort6 := sorters{f.prefix, interception.IPv6, v6, map[string]bool{}}
	for _, name := range hookNames(v4, v6) {
		jumps := func(h hook) (texts []string) {
			for _, r := range h.owned() {
				texts = append(texts, r.text)
			}
			return texts
		}
		for _, r := range f.rules(kind, sort4.groups(jumps(v4.hook(name))), sort6.groups(jumps(v6.hook(name))), false) {
			t.Entries = append(t.Entries, entry(kind, name, r))
		}
	}
	// If a family has nothing, that is no evidence against a rule for both.
	alone := len(v4.chains) == 0 && !v4.leadsIn() || len(v6.chains) == 0 && !v6.leadsIn()
	for _, name := range f.chainNamesOf(v4, v6) {
		rules4, there4 := sort4.unread(name)
		rules6, there6 := sort6.unread(name)
		if !there4 && !there6 {
			continue
		}
		own := strings.TrimPrefix(name, f.prefix)
		t.Chains = append(t.Chains, interception.Chain{
			Name:  interception.ChainName(strings.ToLower(own)),
			Rules: f.rules(kind, sort4.groups(rules4), sort6.groups(rules6), alone),
		})
	}
	return t, len(t.Entries)+len(t.Chains) > 0
}

// entry returns a jump from a hook. A rule that is not a jump of a plan becomes an entry with its
// match, and with its action as the reason.
func entry(kind interception.TableKind, hookName string, r interception.Rule) interception.Entry {
	e := interception.Entry{ID: r.ID, Match: r.Match, Why: r.Why}
	for _, h := range kind.Hooks() {
		if strings.ToUpper(h.String()) == hookName {
			e.Hook = h
		}
	}
	if jump, ok := r.Action.(interception.Jump); ok {
		e.Chain = jump.Chain
	} else {
		e.Why = fmt.Sprint(r.Action)
	}
	return e
}

// chainNamesOf returns the names of chains, first plans' own: the others are mostly parts of rules.
func (f folder) chainNamesOf(tables ...table) []string {
	var names, numbers []string
	for _, t := range tables {
		for _, c := range t.chains {
			list := &names
			if isNumbered(c.name, f.prefix) {
				list = &numbers
			}
			if !slices.Contains(*list, c.name) {
				*list = append(*list, c.name)
			}
		}
	}
	return append(names, numbers...)
}

// groups collects the rules of a chain by their comments.
func (s sorters) groups(rules []string) []group {
	var all []group
	for _, l := range s.lines(rules) {
		if last := len(all) - 1; last >= 0 && l.comment != "" && all[last].comment == l.comment {
			all[last].lines = append(all[last].lines, l)
			continue
		}
		all = append(all, group{l.comment, []line{l}})
	}
	return all
}

// withoutComment separates a rule's comment from its words, in the form of iptables-save.
func withoutComment(words []string) ([]string, string) {
	words = slices.Clone(words)
	comment := ""
	for i := 0; i+3 < len(words); i++ {
		if words[i] == "-m" && words[i+1] == "comment" && words[i+2] == "--comment" {
			comment = words[i+3]
			words = slices.Delete(words, i, i+4)
			break
		}
	}
	if n := len(words); n > 2 && words[n-2] == "--zone" && words[n-1] == "0" {
		words = words[:n-2]
	}
	return words, comment
}

// rules returns those of a chain of both families, in an order that agrees with both.
func (f folder) rules(kind interception.TableKind, v4, v6 []group, alone bool) []interception.Rule {
	var rules []interception.Rule
	next := map[string][]int{} // the indices of a comment in v6
	for i, g := range v6 {
		if g.comment != "" {
			next[g.comment] = append(next[g.comment], i)
		}
	}
	done := 0
	for _, g := range v4 {
		places := next[g.comment]
		for len(places) > 0 && places[0] < done {
			places = places[1:]
		}
		next[g.comment] = places
		if len(places) == 0 {
			rules = append(rules, f.fold(kind, alone, g)...)
			continue
		}
		for _, between := range v6[done:places[0]] {
			rules = append(rules, f.fold(kind, alone, between)...)
		}
		rules = append(rules, f.fold(kind, alone, g, v6[places[0]])...)
		done = places[0] + 1
	}
	for _, rest := range v6[done:] {
		rules = append(rules, f.fold(kind, alone, rest)...)
	}
	return rules
}

// fold returns one rule for groups, one of each family, or else a rule for each line.
func (f folder) fold(kind interception.TableKind, alone bool, groups ...group) []interception.Rule {
	var lines []line
	for _, g := range groups {
		lines = append(lines, g.lines...)
	}
	id, hash, why, _ := lower.ParseComment(groups[0].comment)
	if r, ok := f.one(kind, lines, id, hash, why, alone); ok {
		return []interception.Rule{r}
	}
	if len(groups) > 1 {
		return slices.Concat(f.fold(kind, alone, groups[0]), f.fold(kind, alone, groups[1]))
	}
	var rules []interception.Rule
	for _, l := range lines {
		r, ok := f.one(kind, []line{l}, id, hash, why, alone)
		if !ok {
			opaque := interception.Opaque{Text: l.text()}
			r = interception.Rule{ID: id, Match: interception.Match{Family: l.family}, Action: opaque, Why: why}
		}
		rules = append(rules, r)
	}
	return rules
}

// one returns the rule of the lines, if its rendering gives exactly these lines.
func (f folder) one(
	kind interception.TableKind, lines []line, id interception.RuleID, hash, why string, alone bool,
) (interception.Rule, bool) {
	match, action, err := f.merged(lines)
	if err != nil {
		return interception.Rule{}, false
	}
	var likely, others []interception.Rule
	for _, candidate := range candidates(match, lines, alone) {
		r := interception.Rule{ID: id, Match: candidate, Action: action, Why: why}
		kept := r
		kept.Action = interception.SNATTo{Keep: true}
		switch {
		case hasHash(r, hash):
			likely = append(likely, r)
		case kind == interception.NAT && action == (interception.Accept{}) && hasHash(kept, hash):
			likely = append(likely, kept)
		default:
			others = append(others, r)
		}
	}
	for _, r := range append(likely, others...) {
		if f.renders(kind, r, lines, alone) {
			return r, true
		}
	}
	return interception.Rule{}, false
}

// hasHash reports whether the rule's comment has this hash.
func hasHash(r interception.Rule, hash string) bool {
	_, own, _, ok := lower.ParseComment(r.Comment())
	return ok && own == hash
}

// observed names the chain for rendering a rule, and replaces an id or reason that is missing.
const observed = "observed"

// renders reports whether the rule, alone in a chain, is rendered as exactly these lines. A family
// without any rules in the table is ignored.
func (f folder) renders(kind interception.TableKind, r interception.Rule, lines []line, alone bool) bool {
	r, lines = f.named(r, lines)
	chains := []interception.Chain{{Name: observed, Rules: []interception.Rule{r}}}
	if jump, ok := r.Action.(interception.Jump); ok {
		if jump.Chain == observed {
			chains[0].Name += "-too"
		}
		chains = append(chains, interception.Chain{Name: jump.Chain})
	}
	rule := &chains[0].Rules[0]
	if rule.ID == "" {
		rule.ID, rule.Why = observed, observed
	}
	objects := append(slices.Clone(f.sets), interception.Table{Kind: kind, Chains: chains})
	plan := &interception.Plan{Owner: f.owner, Objects: objects}
	for _, family := range families() {
		var want []line
		for _, l := range lines {
			if l.family == family {
				want = append(want, l)
			}
		}
		if alone && len(want) == 0 {
			continue
		}
		got, ok := f.rendered(plan, family)
		if !ok || !slices.EqualFunc(want, got, func(a, b line) bool {
			return slices.Equal(a.words, b.words) && slices.EqualFunc(a.below, b.below, slices.Equal)
		}) {
			return false
		}
	}
	return true
}

// named returns a rule with its lines. If the rule leads to a chain that no plan can have, another
// chain's name replaces that chain's.
func (f folder) named(r interception.Rule, lines []line) (interception.Rule, []line) {
	jump, ok := r.Action.(interception.Jump)
	if !ok || jump.Chain.Validate() == nil {
		return r, lines
	}
	const other = "stand-in"
	r.Action, lines = interception.Jump{Chain: other}, slices.Clone(lines)
	for i, l := range lines {
		words := slices.Clone(l.words)
		words[len(words)-1] = f.prefix + strings.ToUpper(other) // a jump is the end of a line
		lines[i].words = words
	}
	return r, lines
}

// rendered returns the lines of the plan's first chain; false when the rendering has more chains.
func (f folder) rendered(plan *interception.Plan, family interception.Family) ([]line, bool) {
	text, err := render.IPTablesRestore(plan, family)
	if err != nil {
		return nil, false
	}
	set, err := planned(string(text), f.prefix)
	if err != nil {
		return nil, false
	}
	for t := range plan.Tables() {
		if len(set[t.Kind].chains) < len(t.Chains) {
			return nil, false
		}
		s := sorters{f.prefix, family, set[t.Kind], map[string]bool{}}
		lines := s.lines(set[t.Kind].chains[0].rules)
		return lines, len(set[t.Kind].chains) == len(t.Chains)+len(s.read)
	}
	return nil, false
}
