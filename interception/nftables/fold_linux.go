// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"slices"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
)

// folded is a rule of a plan, as far as one can be seen, with the rules in the kernel that it stands for. These are as [lower.Chains] has
// them: some actions are less there than in a plan.
type folded struct {
	interception.Rule

	hash   string // which the comment says
	stands []string
}

// fold makes rules of a plan of those that the kernel has in a chain of one kind. What several of them are together is taken from
// how they stand and from their comments, and holds only when the rule that was made of them becomes exactly these again.
func fold(kind interception.TableKind, rules []folded) []interception.Rule {
	rules = foldActions(kind, rules)
	var all []interception.Rule
	for len(rules) > 0 {
		n := min(len(rules), maxFolded)
		for ; n > 1; n-- {
			if whole, ok := union(rules[:n]); ok && whole.becomes(kind) {
				rules[n-1] = whole
				break
			}
		}
		all = append(all, rules[n-1].spelled())
		rules = rules[n:]
	}
	return all
}

// maxFolded is more interfaces than a plan names by patterns; any more are left as they are.
const maxFolded = 64

// foldActions joins the pairs of which a plan's action is made, and calls those that are no pair by their own name.
func foldActions(kind interception.TableKind, rules []folded) []folded {
	var all []folded
	for i := 0; i < len(rules); i++ {
		f := rules[i]
		switch f.Action.(type) {
		case interception.TProxyTo, interception.Reject:
			if pair, ok := f.and(rules[i+1:]); ok && pair.becomes(kind) {
				f = pair
				i++
			} else if !f.becomes(kind) {
				f.Action = interception.Opaque{Text: fmt.Sprintf("%s, and nothing else", f.Action)}
			}
		}
		all = append(all, f)
	}
	return all
}

// and is the rule together with the next one, which may be of more protocols.
func (f folded) and(next []folded) (folded, bool) {
	if len(next) == 0 {
		return folded{}, false
	}
	f.Match.L4 = next[0].Match.L4
	f.stands = slices.Concat(f.stands, next[0].stands)
	return f, true
}

// becomes reports whether the rule, in a plan, becomes in the kernel the rules that it stands for.
func (f folded) becomes(kind interception.TableKind) bool {
	return slices.Equal(lowered(kind, f.Rule), f.stands)
}

// lowered is what a rule becomes in the kernel.
func lowered(kind interception.TableKind, r interception.Rule) []string {
	if _, opaque := r.Action.(interception.Opaque); opaque {
		return []string{loweredText(r.Match, r.Action)}
	}
	plan := interception.Plan{Objects: []interception.Object{
		interception.Table{Kind: kind, Chains: []interception.Chain{{Name: "chain", Rules: []interception.Rule{r}}}},
	}}
	var texts []string
	for _, chain := range lower.Chains(&plan) {
		for _, rule := range chain.Rules {
			texts = append(texts, loweredText(rule.Match, rule.Action))
		}
	}
	return texts
}

func loweredText(m interception.Match, a interception.Action) string {
	return fmt.Sprintf("%s -> %s", m, a)
}

// union is one rule for the interfaces of all, when they have the same comment and differ in nothing else.
func union(rules []folded) (folded, bool) {
	whole := rules[0]
	whole.stands = nil
	in, out := []interception.Interface(nil), []interception.Interface(nil)
	for _, f := range rules {
		if f.ID == "" || f.ID != whole.ID || f.hash != whole.hash || f.Why != whole.Why || f.Match.In.Negated() || f.Match.Out.Negated() {
			return folded{}, false
		}
		in, out = append(in, f.Match.In.Set().Names()...), append(out, f.Match.Out.Set().Names()...)
		whole.stands = append(whole.stands, f.stands...)
	}
	if whole.Match.In.Present() {
		whole.Match.In = interception.Is(interception.Interfaces(in...))
	}
	if whole.Match.Out.Present() {
		whole.Match.Out = interception.Is(interception.Interfaces(out...))
	}
	return whole, true
}

// spelled is the rule as the plan wrote it, where the kernel has one form for two: a family may be named beside an address of it. The
// comment's hash says which it was.
func (f folded) spelled() interception.Rule {
	named := f.Rule
	named.Match.Family = f.Match.EffectiveFamily()
	if _, hash, _, ok := lower.ParseComment(named.Comment()); ok && hash == f.hash {
		return named
	}
	return f.Rule
}
