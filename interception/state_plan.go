// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"fmt"
	"slices"
)

// foundWhy is the reason of what was observed without one.
const foundWhy = "found in the kernel"

// Plan takes what was observed for a plan, for those who trace, render or compare it: ids and reasons that the kernel's comments don't
// tell, or that can't be, are made up, so that they are unique, and so are names of chains that no plan can have. Deviations and the
// chains of others are not in it. With a rule that
// could not be decoded it is no valid plan: [Plan.Validate] names the rule.
func (s State) Plan() *Plan {
	plan := &Plan{Owner: s.Owner, Objects: slices.Clone(s.Objects)}
	n := naming{seen: map[RuleID]bool{}}
	for i, object := range plan.Objects {
		plan.Objects[i] = n.object(object)
	}
	return plan
}

// naming gives valid ids and reasons.
type naming struct {
	seen map[RuleID]bool
}

func (n *naming) name(id RuleID, why string) (RuleID, string) {
	for i := len(n.seen); id.Validate() != nil || n.seen[id]; i++ {
		id = RuleID(fmt.Sprintf("observed.%d", i))
	}
	n.seen[id] = true
	if why == "" {
		why = foundWhy
	}
	return id, why
}

func (n *naming) object(object Object) Object {
	switch o := object.(type) {
	case Link:
		o.ID, o.Why = n.name(o.ID, o.Why)
		return o
	case Address:
		o.ID, o.Why = n.name(o.ID, o.Why)
		return o
	case Sysctl:
		o.ID, o.Why = n.name(o.ID, o.Why)
		return o
	case Route:
		o.ID, o.Why = n.name(o.ID, o.Why)
		return o
	case PolicyRule:
		o.ID, o.Why = n.name(o.ID, o.Why)
		return o
	case Set:
		if o.Why == "" {
			o.Why = foundWhy
		}
		return o
	case Table:
		return n.table(o)
	default:
		return object
	}
}

func (n *naming) table(t Table) Table {
	t.Entries, t.Chains = slices.Clone(t.Entries), slices.Clone(t.Chains)
	chain := chainNaming(t)
	for i, e := range t.Entries {
		t.Entries[i].Chain = chain(e.Chain)
		t.Entries[i].ID, t.Entries[i].Why = n.name(e.ID, e.Why)
	}
	for i, c := range t.Chains {
		t.Chains[i].Name = chain(c.Name)
		t.Chains[i].Rules = slices.Clone(c.Rules)
		for j, r := range c.Rules {
			t.Chains[i].Rules[j].ID, t.Chains[i].Rules[j].Why = n.name(r.ID, r.Why)
			if jump, ok := r.Action.(Jump); ok {
				t.Chains[i].Rules[j].Action = Jump{chain(jump.Chain)}
			}
		}
	}
	return t
}

// chainNaming gives the chains of a table valid names.
func chainNaming(t Table) func(ChainName) ChainName {
	names := map[ChainName]ChainName{}
	for _, c := range t.Chains {
		if c.Name.Validate() != nil {
			continue
		}
		names[c.Name] = c.Name
	}
	return func(name ChainName) ChainName {
		for i := len(names); names[name] == ""; i++ {
			if other := ChainName(fmt.Sprintf("observed-%d", i)); names[other] == "" {
				names[name], names[other] = other, other
			}
		}
		return names[name]
	}
}
