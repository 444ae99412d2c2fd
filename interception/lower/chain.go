// SPDX-License-Identifier: Apache-2.0

package lower

import (
	"fmt"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// Chain is a chain of the owner's table in nf_tables.
type Chain struct {
	// Name is unique within the table: "hook.nat.output" for a base chain
	// ("hook.nat.output.before-10" and "hook.nat.output.behind-10" for one that an
	// [interception.Entry.Offset] moves), "nat-output" for an owned one.
	Name string
	// Table is the kind of the plan's table that the chain comes from.
	Table interception.TableKind
	// Base places a base chain in its hook; nil for an owned chain, which is only jumped to.
	Base *Base
	// Rules are the chain's rules, in order.
	Rules []Rule
}

// Base is the place of a base chain in a hook (nft(8), "Chains").
type Base struct {
	// Type is "filter", "nat", or "route", after which the kernel routes changed packets again.
	Type string
	Hook interception.Hook
	// Priority orders the chains of a hook, lowest first. It is the priority of iptables' table of
	// that kind (linux/netfilter_ipv4.h, enum nf_ip_hook_priorities), plus the offset.
	Priority int32
}

// Rule is a rule in nf_tables: a plan's rule or entry, or one of several that implement it.
type Rule struct {
	// ID and Why come from the plan.
	ID  interception.RuleID
	Why string
	// Match comes from the plan.
	Match interception.Match
	// Action comes from the plan. A Jump's target is the name in nf_tables ([Chain.Name]).
	Action interception.Action
	// Comment is the rule's comment in the kernel.
	Comment string
}

// Chains lays out the plan in the chains of one table: for each table of the plan, its base chains
// in the order of the hooks, then its owned chains in the order of the plan. Where nf_tables has no
// equivalent of a rule, several consecutive rules with the same id and comment implement it:
//
//   - interface patterns among other names: one rule for the names and one for each pattern, of
//     which a packet matches at most one;
//   - Reject of any protocol: a reset for TCP, then ICMP for the rest;
//   - TProxyTo: followed by a Drop for packets without a listening proxy, which nf_tables would
//     otherwise let pass to the application.
func Chains(p *interception.Plan) []Chain {
	var chains []Chain
	for table := range p.Tables() {
		for _, hook := range table.Kind.Hooks() {
			for _, offset := range offsets(table, hook) {
				base := StandardBase(table.Kind, hook)
				base.Priority += offset
				chains = append(chains, Chain{
					Name: baseName(table.Kind, hook, offset), Table: table.Kind, Base: &base, Rules: jumps(table, hook, offset),
				})
			}
		}
		for _, chain := range table.Chains {
			chains = append(chains, Chain{Name: chainName(table.Kind, chain.Name), Table: table.Kind, Rules: rules(table.Kind, chain)})
		}
	}
	return chains
}

func chainName(kind interception.TableKind, name interception.ChainName) string {
	return kind.String() + "-" + string(name)
}

func baseName(kind interception.TableKind, hook interception.Hook, offset int32) string {
	name := "hook." + kind.String() + "." + hook.String()
	switch {
	case offset < 0:
		return fmt.Sprintf("%s.before%d", name, offset) // %d includes the sign
	case offset > 0:
		return fmt.Sprintf("%s.behind-%d", name, offset)
	default:
		return name
	}
}

// offsets returns the offsets of the entries in a hook, in the kernel's order.
func offsets(t interception.Table, hook interception.Hook) []int32 {
	var all []int32
	for _, e := range t.Entries {
		if e.Hook == hook {
			all = append(all, e.Offset)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// StandardBase returns the place of a table's base chain in a hook without an
// [interception.Entry.Offset]: type and priority of iptables' table of that kind.
func StandardBase(kind interception.TableKind, hook interception.Hook) Base {
	b := Base{Type: "filter", Hook: hook}
	switch kind {
	case interception.Raw:
		b.Priority = -300
	case interception.Mangle:
		b.Priority = -150
		if hook == interception.Output {
			b.Type = "route"
		}
	case interception.NAT:
		b.Type, b.Priority = "nat", -100 // destination NAT
		if hook == interception.Input || hook == interception.Postrouting {
			b.Priority = 100 // source NAT
		}
	case interception.Filter:
	}
	return b
}

// jumps returns the rules of a base chain.
func jumps(t interception.Table, hook interception.Hook, offset int32) []Rule {
	var rules []Rule
	for _, e := range t.Entries {
		if e.Hook == hook && e.Offset == offset {
			r := Rule{ID: e.ID, Why: e.Why, Match: e.Match, Action: jump(t.Kind, e.Chain), Comment: e.Comment()}
			rules = r.alternatives(rules)
		}
	}
	return rules
}

func rules(kind interception.TableKind, c interception.Chain) []Rule {
	rules := make([]Rule, 0, len(c.Rules))
	for _, r := range c.Rules {
		action := r.Action
		if target, ok := action.(interception.Jump); ok {
			action = jump(kind, target.Chain)
		}
		rules = Rule{ID: r.ID, Why: r.Why, Match: r.Match, Action: action, Comment: r.Comment()}.alternatives(rules)
	}
	return rules
}

func jump(kind interception.TableKind, to interception.ChainName) interception.Jump {
	return interception.Jump{Chain: interception.ChainName(chainName(kind, to))}
}

// alternatives appends the rules that together implement r; see [Chains].
func (r Rule) alternatives(rules []Rule) []Rule {
	outs := split(r.Match.Out)
	for _, in := range split(r.Match.In) {
		for _, out := range outs {
			r.Match.In, r.Match.Out = in, out
			rules = r.steps(rules)
		}
	}
	return rules
}

// split returns the conditions of which a packet has to meet one: a separate one for each pattern
// among several members.
func split(c interception.Condition[interception.InterfaceSet]) []interception.Condition[interception.InterfaceSet] {
	names, patterns := InterfaceNames(c.Set())
	if c.Negated() || len(patterns) == 0 {
		return []interception.Condition[interception.InterfaceSet]{c}
	}
	var all []interception.Condition[interception.InterfaceSet]
	if len(names) > 0 {
		all = append(all, interception.Is(interception.Interfaces(names...)))
	}
	for _, pattern := range patterns {
		all = append(all, interception.Is(interception.Interfaces(pattern)))
	}
	return all
}

// steps appends r with the rules that must precede or follow it.
func (r Rule) steps(rules []Rule) []Rule {
	switch r.Action.(type) {
	case interception.Reject:
		if r.Match.L4.Protocol() == interception.AnyProtocol {
			reset := r
			reset.Match.L4 = interception.TCP()
			rules = append(rules, reset)
		}
	case interception.TProxyTo:
		drop := r
		drop.Action = interception.Drop{}
		return append(rules, r, drop)
	}
	return append(rules, r)
}

// InterfaceNames returns the names and the patterns of a set, each sorted.
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
