// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// mutant is a valid plan that differs from another in one thing.
type mutant struct {
	name string
	plan *interception.Plan
}

// mutants returns one mutant for each kind of change, at the first place of each table where it
// gives a valid plan that differs.
func mutants(p *interception.Plan) []mutant {
	var found []mutant
	for i, object := range p.Objects {
		replacements := objectMutants(object)
		for _, name := range slices.Sorted(maps.Keys(replacements)) {
			objects := slices.Replace(slices.Clone(p.Objects), i, i+1, replacements[name]...)
			m := &interception.Plan{Owner: p.Owner, Objects: objects}
			state := interception.State{Owner: m.Owner, Objects: m.Objects}
			if m.Validate() == nil && len(interception.Diff(p, state)) > 0 {
				found = append(found, mutant{name, m})
			}
		}
	}
	return found
}

// shifted returns mutants whose first entry of a table has another priority.
func shifted(p *interception.Plan) []mutant {
	var found []mutant
	for i, object := range p.Objects {
		if table, ok := object.(interception.Table); ok && len(table.Entries) > 0 {
			m := &interception.Plan{Owner: p.Owner, Objects: slices.Clone(p.Objects)}
			table.Entries = slices.Clone(table.Entries)
			table.Entries[0].Offset -= 5
			m.Objects[i] = table
			found = append(found, mutant{fmt.Sprintf("%s table: an entry at another priority", table.Kind), m})
		}
	}
	return found
}

// objectMutants returns replacements of an object.
func objectMutants(object interception.Object) map[string][]interception.Object {
	one := func(o interception.Object) []interception.Object { return []interception.Object{o} }
	switch o := object.(type) {
	case interception.Address:
		return map[string][]interception.Object{"address " + string(o.ID) + " left out": nil}
	case interception.Sysctl:
		o.Value++
		return map[string][]interception.Object{"sysctl " + string(o.ID) + " changed": one(o)}
	case interception.Route:
		changed := o
		changed.Table++
		return map[string][]interception.Object{
			"route " + string(o.ID) + " left out": nil, "route " + string(o.ID) + " in another table": one(changed),
		}
	case interception.PolicyRule:
		mutants := map[string][]interception.Object{}
		for name, rule := range policyRuleMutants(o) {
			mutants["policy rule "+string(o.ID)+" "+name] = one(rule)
		}
		mutants["policy rule "+string(o.ID)+" left out"] = nil
		return mutants
	case interception.Set:
		return setMutants(o)
	case interception.Table:
		mutants := map[string][]interception.Object{"table " + o.Kind.String() + " left out": nil}
		for name, table := range tableMutants(o) {
			mutants[o.Kind.String()+" table: "+name] = one(table)
		}
		return mutants
	default:
		return nil
	}
}

// policyRuleMutants changes each selector that the rule has, and its priority.
func policyRuleMutants(r interception.PolicyRule) map[string]interception.PolicyRule {
	mutants := map[string]interception.PolicyRule{}
	change := func(name string, do func(m *interception.PolicyRule)) {
		m := r
		do(&m)
		mutants["with another "+name] = m
	}
	shorter := func(p netip.Prefix) netip.Prefix { return netip.PrefixFrom(p.Addr(), p.Bits()-1).Masked() }
	change("priority", func(m *interception.PolicyRule) { m.Priority++ })
	if !r.Mark.IsEmpty() {
		change("mark", func(m *interception.PolicyRule) { m.Mark.Value ^= m.Mark.Mask & -m.Mark.Mask })
	}
	if r.Source.IsValid() {
		change("source", func(m *interception.PolicyRule) { m.Source = shorter(m.Source) })
	}
	if r.Destination.IsValid() {
		change("destination", func(m *interception.PolicyRule) { m.Destination = shorter(m.Destination) })
	}
	if r.In != "" {
		change("link", func(m *interception.PolicyRule) { m.In = "other0" })
	}
	return mutants
}

func setMutants(o interception.Set) map[string][]interception.Object {
	members := o.Members.Prefixes()
	if o.Live || len(members) < 2 {
		return nil
	}
	host := netip.MustParsePrefix("203.0.113.77/32")
	if o.Family == interception.IPv6 {
		host = netip.MustParsePrefix("3fff::77/128")
	}
	less, more := o, o
	less.Members = interception.Prefixes(members[1:]...)
	more.Members = interception.Prefixes(append(slices.Clone(members), host)...)
	return map[string][]interception.Object{
		"set " + string(o.Name) + " with a member less": {less}, "set " + string(o.Name) + " with a member more": {more},
	}
}

func tableMutants(o interception.Table) map[string]interception.Table {
	mutants := map[string]interception.Table{}
	entries := func(name string, entries []interception.Entry) {
		changed := o
		changed.Entries = entries
		mutants[name] = changed
	}
	if len(o.Entries) > 0 {
		entries("an entry left out", o.Entries[1:])
	}
	// The kernel has no rule for a family that no entry covers.
	both := !slices.ContainsFunc(o.Entries, func(e interception.Entry) bool { return e.Match.EffectiveFamily() != interception.BothFamilies })
	for i, chain := range o.Chains {
		for name, rules := range ruleMutants(chain.Rules, both) {
			changed := o
			changed.Chains = slices.Clone(o.Chains)
			changed.Chains[i].Rules = rules
			mutants[string(chain.Name)+": "+name] = changed
		}
	}
	return mutants
}

// ruleMutants returns replacements of a chain's rules.
func ruleMutants(rules []interception.Rule, both bool) map[string][]interception.Rule {
	mutants := map[string][]interception.Rule{}
	if len(rules) == 0 {
		return mutants
	}
	last := len(rules) - 1
	mutants["the first rule left out"] = rules[1:]
	mutants["the last rule left out"] = rules[:last]
	mutants["the rules in the reverse order"] = slices.Clone(rules)
	slices.Reverse(mutants["the rules in the reverse order"])
	change := func(name string, do func(r *interception.Rule)) {
		changed := slices.Clone(rules)
		do(&changed[last])
		mutants["the last rule "+name] = changed
	}
	change("with another action", func(r *interception.Rule) { r.Action = interception.Return{} })
	if both {
		change("for one family", func(r *interception.Rule) { r.Match.Family = interception.IPv6 })
	}
	change("for one port", func(r *interception.Rule) { r.Match.L4 = interception.TCP().To(interception.Ports(4711)) })
	change("for one user", func(r *interception.Rule) { r.Match.UID = interception.Is(interception.UIDs(4711)) })
	change("for one mark", func(r *interception.Rule) { r.Match.Mark = interception.Is(interception.WholeMark(0x4711)) })
	change("for replies", func(r *interception.Rule) { r.Match.Direction = interception.DirectionReply })
	change("to another port", func(r *interception.Rule) {
		switch action := r.Action.(type) {
		case interception.RedirectTo:
			action.Port++
			r.Action = action
		case interception.TProxyTo:
			action.Port++
			r.Action = action
		}
	})
	more := rules[last]
	more.ID, more.Action = "one.more", interception.Return{}
	mutants["a rule more in front"] = slices.Insert(slices.Clone(rules), 0, more)
	return mutants
}
