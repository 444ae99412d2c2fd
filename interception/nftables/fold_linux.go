// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"slices"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
)

// folded is a rule of a plan, as far as one can be identified, with the kernel's rules that it
// represents. These have the form of [lower.Chains], in which some actions do less than a plan's.
type folded struct {
	interception.Rule

	hash   string   // from the comment
	kernel []string // the kernel's rules, as text
}

// fold converts the kernel's rules of a chain to rules of a plan. Their order and comments suggest
// which of them belong together; they do only if the resulting rule becomes exactly these again.
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

// maxFolded exceeds the interface patterns in plans; longer sequences are left as they are.
const maxFolded = 64

// foldActions joins the pairs that make up one action of a plan. A half alone becomes opaque.
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

// and returns the rule joined with the next one, which may cover more protocols.
func (f folded) and(next []folded) (folded, bool) {
	if len(next) == 0 {
		return folded{}, false
	}
	f.Match.L4 = next[0].Match.L4
	f.kernel = slices.Concat(f.kernel, next[0].kernel)
	return f, true
}

// becomes reports whether the rule, in a plan, becomes the kernel's rules that it represents.
func (f folded) becomes(kind interception.TableKind) bool {
	return slices.Equal(lowered(kind, f.Rule), f.kernel)
}

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

// union returns one rule for the interfaces of rules that otherwise agree, comments included.
func union(rules []folded) (folded, bool) {
	whole := rules[0]
	whole.kernel = nil
	in, out := []interception.Interface(nil), []interception.Interface(nil)
	for _, f := range rules {
		if f.ID == "" || f.ID != whole.ID || f.hash != whole.hash || f.Why != whole.Why || f.Match.In.Negated() || f.Match.Out.Negated() {
			return folded{}, false
		}
		in, out = append(in, f.Match.In.Set().Names()...), append(out, f.Match.Out.Set().Names()...)
		whole.kernel = append(whole.kernel, f.kernel...)
	}
	if whole.Match.In.Present() {
		whole.Match.In = interception.Is(interception.Interfaces(in...))
	}
	if whole.Match.Out.Present() {
		whole.Match.Out = interception.Is(interception.Interfaces(out...))
	}
	return whole, true
}

// spelled returns the rule as the plan wrote it, where the kernel has one form for two: a plan may
// name the family in addition to an address, and copy a mark that the match fixes. The comment's
// hash decides.
func (f folded) spelled() interception.Rule {
	for _, action := range []interception.Action{f.Action, f.copies()} {
		for _, family := range []interception.Family{f.Match.EffectiveFamily(), f.Match.Family} {
			named := f.Rule
			named.Action, named.Match.Family = action, family
			if _, hash, _, ok := lower.ParseComment(named.Comment()); ok && hash == f.hash {
				return named
			}
		}
	}
	return f.Rule
}

// copies returns the action that copies the bits of a mark which the rule writes, if that does the
// same; else the rule's action.
func (f folded) copies() interception.Action {
	switch set := f.Action.(type) {
	case interception.SetConnMark:
		if same, ok := (interception.SaveMark{Mask: set.Mark.Mask}).Fixed(f.Match); ok && same == set {
			return interception.SaveMark{Mask: set.Mark.Mask}
		}
	case interception.SetMark:
		if same, ok := (interception.RestoreMark{Mask: set.Mark.Mask}).Fixed(f.Match); ok && same == set {
			return interception.RestoreMark{Mask: set.Mark.Mask}
		}
	}
	return f.Action
}
