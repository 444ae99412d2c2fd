// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
)

// foreign returns the chains of other programs in a listing, without the kernel's chains that do
// nothing and without the owner's rules.
func (l listing) foreign(t tool, prefix string) []interception.ForeignChain {
	family := "ip "
	if t.family == interception.IPv6 {
		family = "ip6 "
	}
	if t.flavour == Legacy {
		family = "legacy " + family
	}
	var chains []interception.ForeignChain
	for _, table := range l.tables {
		kind, known := kindOf(table.name)
		if !known {
			continue
		}
		for _, c := range table.chains {
			f := interception.ForeignChain{Table: family + table.name, Name: c.name, Rules: table.foreignRules(c, t.family, prefix)}
			f.Shared = len(f.Rules) < len(c.rules)
			if strings.HasPrefix(c.name, prefix) || c.kernel && len(f.Rules) == 0 && c.policy == "ACCEPT" {
				continue
			}
			if c.kernel {
				base(&f, kind, c)
			}
			chains = append(chains, f)
		}
	}
	return chains
}

// base sets how a chain of the kernel is attached to its hook.
func base(f *interception.ForeignChain, kind interception.TableKind, c listedChain) {
	f.Policy = interception.Accept{}
	if c.policy != "ACCEPT" {
		f.Policy = interception.Drop{}
	}
	for _, hook := range kind.Hooks() {
		if strings.ToUpper(hook.String()) == c.name {
			standard := lower.StandardBase(kind, hook)
			f.Hook, f.Type, f.Priority = hook.String(), standard.Type, standard.Priority
		}
	}
}

// foreignRules returns a chain's rules except for the owner's, one for each line.
func (t listedTable) foreignRules(c listedChain, family interception.Family, prefix string) []interception.Rule {
	var rules []interception.Rule
	for _, listed := range c.rules {
		if listed.leadsTo(prefix) {
			continue
		}
		rules = append(rules, t.foreignRule(listed, family, prefix))
	}
	return rules
}

// foreignRule returns a rule of another program.
func (t listedTable) foreignRule(listed listedRule, family interception.Family, prefix string) interception.Rule {
	words, comment := withoutComment(listed.words())
	id, _, why, _ := lower.ParseComment(comment)
	r := interception.Rule{ID: id, Match: interception.Match{Family: family}, Why: why}
	target := jumpTarget(words)
	// A jump has no options: decoding RETURN in its place yields what it matches.
	jump := len(words) >= 2 && words[len(words)-2] == "-j" && slices.ContainsFunc(t.chains, func(c listedChain) bool { return c.name == target })
	if jump {
		words = append(slices.Clone(words[:len(words)-1]), "RETURN")
	}
	d, err := decodeForeign(words, family, prefix)
	switch {
	case err != nil, jump && d.to != "":
		r.Action = interception.Opaque{Text: listed.text}
	case d.to != "":
		r.Match, r.Action = d.match, interception.Opaque{Text: listed.text, To: d.to, Then: d.action}
	case jump:
		r.Match, r.Action = d.match, interception.Jump{Chain: interception.ChainName(target)}
	default:
		r.Match, r.Action = d.match, d.action
	}
	if r.Match.EffectiveFamily() == interception.BothFamilies {
		r.Match.Family = family
	}
	if d.reset && r.Match.L4.Protocol() == interception.AnyProtocol {
		r.Match.L4 = interception.TCP()
	}
	return r
}
