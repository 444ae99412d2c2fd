// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"fmt"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// Rules are the possible subjects: a plan, or the state of one observed in a kernel.
type Rules interface {
	*interception.Plan | interception.State
}

// subject is a plan in question, and its form for package trace.
type subject struct {
	plan *interception.Plan
	// traced has no opaque rules, and valid ids and reasons.
	traced *interception.Plan
	// deviations are what a plan of the owner cannot express; doubts are what may do anything to
	// any packet.
	deviations, doubts []string
	// forwarding are doubts about forwarded packets: foreign chains in hook forward.
	forwarding []string
	// beside are the foreign chains: with opaque rules, and without.
	beside [2][]*interception.Plan
}

// plans returns the plans that represent the subject.
func (s subject) plans() []*interception.Plan {
	return slices.Concat([]*interception.Plan{s.plan}, s.beside[0])
}

// tracedPlans returns the plans without opaque rules.
func (s subject) tracedPlans() []*interception.Plan {
	return slices.Concat([]*interception.Plan{s.traced}, s.beside[1])
}

func subjectOf[R Rules](rules R) (subject, error) {
	switch r := any(rules).(type) {
	case interception.State:
		return observed(r)
	case *interception.Plan:
		if r == nil {
			return subject{}, r.Validate()
		}
		return subject{plan: r, traced: r}, r.Validate()
	default:
		// The type parameter excludes all other types.
		return subject{}, fmt.Errorf("%T is neither a plan nor a state", rules)
	}
}

// observed converts a state to a plan.
func observed(s interception.State) (subject, error) {
	plan := s.Plan()
	if s.Dormant { // its tables have no effect
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

// decoded returns the table without its opaque rules.
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
