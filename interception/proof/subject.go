// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"errors"
	"fmt"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// Rules are what can be asked about: a plan, or what was observed of one in a kernel.
type Rules interface {
	*interception.Plan | interception.State
}

// subject is a plan to ask about, and the same one as package trace takes it.
type subject struct {
	plan *interception.Plan
	// traced has no opaque rules, and valid ids and reasons.
	traced *interception.Plan
}

func subjectOf[R Rules](rules R) (subject, error) {
	switch r := any(rules).(type) {
	case interception.State:
		return observed(r)
	case *interception.Plan:
		if r == nil {
			return subject{}, errors.New("the plan is nil: one without objects stands for no rules")
		}
		return subject{r, r}, r.Validate()
	default:
		return subject{}, fmt.Errorf("%T is neither a plan nor a state", rules) // the type parameter allows no other
	}
}

// observed takes a state for a plan: ids and reasons that a kernel's comments don't tell, or that can't be, are made up.
func observed(s interception.State) (subject, error) {
	plan := &interception.Plan{Owner: s.Owner, Objects: slices.Clone(s.Objects)}
	n := naming{seen: map[interception.RuleID]bool{}}
	for i, object := range plan.Objects {
		plan.Objects[i] = n.object(object)
	}
	traced := &interception.Plan{Owner: plan.Owner, Objects: slices.Clone(plan.Objects)}
	for i, object := range traced.Objects {
		if t, ok := object.(interception.Table); ok {
			traced.Objects[i] = decoded(t)
		}
	}
	return subject{plan, traced}, traced.Validate()
}

// decoded is the table without its opaque rules.
func decoded(t interception.Table) interception.Table {
	t.Chains = slices.Clone(t.Chains)
	for i, c := range t.Chains {
		t.Chains[i].Rules = slices.DeleteFunc(slices.Clone(c.Rules), func(r interception.Rule) bool {
			_, opaque := r.Action.(interception.Opaque)
			return opaque
		})
	}
	return t
}

// naming gives valid ids and reasons.
type naming struct {
	seen map[interception.RuleID]bool
}

func (n *naming) name(id interception.RuleID, why string) (interception.RuleID, string) {
	if id.Validate() != nil || n.seen[id] {
		id = interception.RuleID(fmt.Sprintf("observed.%d", len(n.seen)))
	}
	n.seen[id] = true
	if why == "" {
		why = "found in the kernel"
	}
	return id, why
}

func (n *naming) object(object interception.Object) interception.Object {
	switch o := object.(type) {
	case interception.Link:
		o.ID, o.Why = n.name(o.ID, o.Why)
		return o
	case interception.Address:
		o.ID, o.Why = n.name(o.ID, o.Why)
		return o
	case interception.Sysctl:
		o.ID, o.Why = n.name(o.ID, o.Why)
		return o
	case interception.Route:
		o.ID, o.Why = n.name(o.ID, o.Why)
		return o
	case interception.PolicyRule:
		o.ID, o.Why = n.name(o.ID, o.Why)
		return o
	case interception.Set:
		if o.Why == "" {
			o.Why = "found in the kernel"
		}
		return o
	case interception.Table:
		return n.table(o)
	default:
		return object
	}
}

func (n *naming) table(t interception.Table) interception.Table {
	t.Entries, t.Chains = slices.Clone(t.Entries), slices.Clone(t.Chains)
	for i, e := range t.Entries {
		t.Entries[i].ID, t.Entries[i].Why = n.name(e.ID, e.Why)
	}
	for i, c := range t.Chains {
		t.Chains[i].Rules = slices.Clone(c.Rules)
		for j, r := range c.Rules {
			t.Chains[i].Rules[j].ID, t.Chains[i].Rules[j].Why = n.name(r.ID, r.Why)
		}
	}
	return t
}
