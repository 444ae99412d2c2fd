// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
)

// The limits for a plan.
const (
	maxLines = 1 << 16 // of one family's text; loading more takes seconds
	maxDepth = 15      // of chains below a hook: NFT_JUMP_STACK_SIZE less the base chain
)

// xtables lays out one table of a plan for one family.
type xtables struct {
	owner  interception.Owner
	family interception.Family
	sets   map[interception.SetName]interception.PrefixSet // the fixed ones
	live   map[interception.SetName]string                 // the others, with the names of their ipsets
	kind   interception.TableKind

	chains  []*xtChain
	entries []xtEntry
	sorters int // number of chains named by number
	lines   int // of all tables so far
}

// xtChain is a chain of the owner.
type xtChain struct {
	name  string
	lines []xtLine
}

// xtLine is a rule in iptables' syntax.
type xtLine struct {
	text string // without the chain
	to   string // target chain, if any
}

// xtEntry is a jump from a hook.
type xtEntry struct {
	hook  interception.Hook
	first bool
	xtChain
}

func (x *xtables) table(t interception.Table) error {
	for _, chain := range t.Chains {
		at := x.add(x.chainName(chain.Name))
		for _, r := range chain.Rules {
			var err error
			if at, err = x.rule(at, lower.Rule{ID: r.ID, Why: r.Why, Match: r.Match, Action: r.Action, Comment: r.Comment()}); err != nil {
				return err
			}
		}
	}
	entries := slices.Clone(t.Entries)
	slices.SortStableFunc(entries, func(a, b interception.Entry) int { return cmp.Compare(a.Offset, b.Offset) })
	first := map[interception.Hook]bool{} // whether the least offset of the hook is negative
	for _, e := range entries {
		first[e.Hook] = first[e.Hook] || e.Offset < 0
		jump := xtEntry{hook: e.Hook, first: first[e.Hook]}
		r := lower.Rule{ID: e.ID, Why: e.Why, Match: e.Match, Action: interception.Jump{Chain: e.Chain}, Comment: e.Comment()}
		if _, err := x.rule(&jump.xtChain, r); err != nil {
			return err
		}
		x.entries = append(x.entries, jump)
	}
	return x.checkDepth()
}

func (x *xtables) chainName(name interception.ChainName) string {
	return strings.ToUpper(string(x.owner) + "_" + string(name))
}

func (x *xtables) add(name string) *xtChain {
	chain := &xtChain{name: name}
	x.chains = append(x.chains, chain)
	return chain
}

// sorter adds a chain for a rule that takes more than one line. Plans have no names of digits.
func (x *xtables) sorter() *xtChain {
	x.sorters++
	return x.add(fmt.Sprintf("%s_%d", strings.ToUpper(string(x.owner)), x.sorters))
}

// rule adds a rule to a chain and returns the chain for the rules after it.
func (x *xtables) rule(at *xtChain, r lower.Rule) (*xtChain, error) {
	if !isOf(r.Match, x.family) {
		return at, nil
	}
	if _, rejects := r.Action.(interception.Reject); rejects && r.Match.L4.Protocol() == interception.AnyProtocol {
		tcp := r
		tcp.Match.L4 = interception.TCP()
		if _, err := x.rule(at, tcp); err != nil {
			return nil, err
		}
	}
	conditions := x.conditions(r.Match)
	count := conditions.count()
	if count == 0 {
		return at, nil
	}
	if x.lines += count + len(conditions.none); x.lines > maxLines {
		return nil, fmt.Errorf("%s (%s): %w: with it the text has more than %d lines: use nftables, which has sets",
			r.ID, r.Why, interception.ErrUnsupported, maxLines)
	}
	if len(conditions.none) == 0 {
		for _, words := range conditions.each() {
			x.act(at, words, r)
		}
		return at, nil
	}
	sorter := x.sorter()
	if _, returns := r.Action.(interception.Return); returns {
		return x.sortOutReturn(at, sorter, conditions, r), nil
	}
	for _, words := range conditions.each() {
		at.line(words, r, "-j", sorter.name)
	}
	for _, words := range conditions.none {
		sorter.line(words, r, "-j RETURN", "")
	}
	x.act(sorter, protocolWords(r.Match.L4), r)
	return at, nil
}

// sortOutReturn adds a rule that returns from its own chain, not from the chain that sorts out.
// Other packets continue in a chain with the remaining rules, to which -g leads without a way back.
func (x *xtables) sortOutReturn(at, sorter *xtChain, conditions xtConditions, r lower.Rule) *xtChain {
	rest := x.sorter()
	for _, words := range conditions.each() {
		at.line(words, r, "-g", sorter.name)
	}
	at.line("", r, "-g", rest.name)
	for _, words := range conditions.none {
		sorter.line(words, r, "-g", rest.name)
	}
	sorter.line("", r, "-j RETURN", "")
	return rest
}

// act adds the line with the rule's action for packets that match the words.
func (x *xtables) act(at *xtChain, words string, r lower.Rule) {
	if jump, ok := r.Action.(interception.Jump); ok {
		at.line(words, r, "-j", x.chainName(jump.Chain))
		return
	}
	at.line(words, r, "-j "+x.target(r), "")
}

// line adds a line. verdict is its end without the target chain.
func (c *xtChain) line(words string, r lower.Rule, verdict, to string) {
	comment := "-m comment --comment " + commentWord(r.Comment)
	c.lines = append(c.lines, xtLine{text: joined(words, comment, verdict, to), to: to})
}

// joined joins the words that are not empty.
func joined(words ...string) string {
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ")
}

// checkDepth refuses chains too deep for the kernel, sorters included. There are no cycles.
func (x *xtables) checkDepth() error {
	depths := map[string]int{} // by chain, itself included
	byName := map[string]*xtChain{}
	for _, c := range x.chains {
		byName[c.name] = c
	}
	var depth func(name string) int
	depth = func(name string) int {
		if d, known := depths[name]; known {
			return d
		}
		deepest := 0
		for _, l := range byName[name].lines {
			if l.to != "" {
				deepest = max(deepest, depth(l.to))
			}
		}
		depths[name] = deepest + 1
		return deepest + 1
	}
	for _, e := range x.entries {
		for _, l := range e.lines {
			if d := depth(l.to); d > maxDepth {
				return fmt.Errorf("table %s: %w: chains call each other %d deep below %s, and iptables takes %d: use shorter lists of what is excluded",
					x.kind, interception.ErrUnsupported, d, e.hook, maxDepth)
			}
		}
	}
	return nil
}
