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
	// deviations are what a plan cannot say of the owner's, and doubts what may do anything to any
	// packet.
	deviations, doubts []string
	// forwarding are doubts about what is forwarded: chains of others in hook forward.
	forwarding []string
	// beside are the chains of others: with opaque rules, and without.
	beside [2][]*interception.Plan
}

// plans are all that stands for the subject.
func (s subject) plans() []*interception.Plan {
	return slices.Concat([]*interception.Plan{s.plan}, s.beside[0])
}

// tracedPlans are the same without opaque rules.
func (s subject) tracedPlans() []*interception.Plan {
	return slices.Concat([]*interception.Plan{s.traced}, s.beside[1])
}

func subjectOf[R Rules](rules R) (subject, error) {
	switch r := any(rules).(type) {
	case interception.State:
		return observed(r)
	case *interception.Plan:
		if r == nil {
			return subject{}, errors.New("the plan is nil: one without objects stands for no rules")
		}
		return subject{plan: r, traced: r}, r.Validate()
	default:
		return subject{}, fmt.Errorf("%T is neither a plan nor a state", rules) // the type parameter allows no other
	}
}

// observed takes a state for a plan.
func observed(s interception.State) (subject, error) {
	plan := s.Plan()
	if s.Dormant { // nobody asks its tables
		plan.Objects = slices.DeleteFunc(plan.Objects, func(o interception.Object) bool {
			_, table := o.(interception.Table)
			return table
		})
	}
	traced := &interception.Plan{Owner: plan.Owner, Objects: slices.Clone(plan.Objects)}
	for i, object := range traced.Objects {
		if t, ok := object.(interception.Table); ok {
			traced.Objects[i] = decoded(t)
		}
	}
	all, doubts := deviations(s)
	if err := traced.Validate(); err != nil {
		plan, traced = &interception.Plan{Owner: s.Owner}, &interception.Plan{Owner: s.Owner}
		text := fmt.Sprintf("the objects make no plan: %v", err)
		all, doubts = append(all, text), append(doubts, text)
	}
	found := subject{plan: plan, traced: traced, deviations: all, doubts: doubts}
	found.addNeighbours(s)
	return found, traced.Validate()
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
