// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
)

// holds checks that a namespace holds a plan, if the dataplane can observe.
func (s *suite) holds(t testing.TB, law Law, ns *interception.Netns, p *interception.Plan) {
	t.Helper()
	if _, without := s.Without[LawObserves]; without {
		return
	}
	state := s.observe(t, law, ns, p.Owner)
	if drifts := interception.Diff(p, state); len(drifts) > 0 {
		law.broken(t, "Observe differs from the plan of %s that was applied:\n%s\nobserved:\n%s\nthe namespace holds:\n%s",
			p.Owner, lines(drifts), text(state), s.Ground.Dump(t, ns))
	}
}

func lines(drifts []interception.Drift) string {
	var b strings.Builder
	for _, d := range drifts {
		fmt.Fprintln(&b, d)
	}
	return b.String()
}

// text returns a state in the form of a plan.
func text(state interception.State) string {
	return (&interception.Plan{Owner: state.Owner, Objects: state.Objects}).String()
}

func (s *suite) observes(t *testing.T) {
	t.Helper()
	s.each(t, s.all(t), func(t *testing.T, c Case) {
		t.Helper()
		ns := s.Ground.Namespace(t)
		nothing := s.observe(t, LawObserves, ns, c.Plan.Owner)
		if len(nothing.Objects) > 0 {
			LawObserves.broken(t, "in a namespace that has nothing:\n%s", text(nothing))
		}
		s.apply(t, LawObserves, ns, c.Plan)
		before := s.Ground.Dump(t, ns)
		s.holds(t, LawObserves, ns, c.Plan)
		LawObserves.same(t, "Observe", "the namespace before", before, "the namespace afterwards", s.Ground.Dump(t, ns))
		if state := s.observe(t, LawObserves, ns, c.Plan.Owner); state.Owner != c.Plan.Owner {
			LawObserves.broken(t, "the state's owner is %q, want %q", state.Owner, c.Plan.Owner)
		}
		if state := s.observe(t, LawObserves, ns, otherOwner); len(state.Objects) > 0 {
			LawObserves.broken(t, "%s, who has nothing there, has:\n%s", otherOwner, text(state))
		}
		s.remove(t, LawObserves, ns, c.Plan.Owner)
		if state := s.observe(t, LawObserves, ns, c.Plan.Owner); len(state.Objects) > 0 {
			LawObserves.broken(t, "after Remove:\n%s", text(state))
		}
	})
}

func (s *suite) order(t *testing.T) {
	t.Helper()
	var plans []*interception.Plan
	// The rules are the same in both orders.
	for _, port := range []interception.Port{80, 443} {
		plan, err := interception.Build(caseOwner, func(b *interception.Builder) {
			c := b.Filter("input")
			c.Entry(interception.Input, interception.Match{L4: interception.TCP()}, "an entry")
			for i := range 12 {
				ports := interception.TCP().To(interception.Ports(port))
				id := interception.RuleID(fmt.Sprintf("filter.r%d", i))
				if i%2 == 0 {
					c.Do(id, interception.Match{L4: ports}, interception.Accept{}, "a rule")
				} else {
					c.Do(id, interception.Match{L4: ports}, interception.Drop{}, "a rule")
				}
				port = 80 + 443 - port
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, plan)
	}
	ns := s.Ground.Namespace(t)
	for _, plan := range slices.Concat(plans, plans) {
		s.apply(t, LawOrder, ns, plan)
		var got, want []string
		state := s.observe(t, LawOrder, ns, plan.Owner)
		for _, rule := range (&interception.Plan{Objects: state.Objects}).Rules() {
			got = append(got, fmt.Sprint(rule.Match, rule.Action))
		}
		for _, rule := range plan.Rules() {
			want = append(want, fmt.Sprint(rule.Match, rule.Action))
		}
		if !slices.Equal(got, want) {
			LawOrder.broken(t, "observed %q\nplan     %q\nthe namespace holds:\n%s", got, want, s.Ground.Dump(t, ns))
		}
	}
}

func (s *suite) families(t *testing.T) {
	t.Helper()
	s.each(t, s.supported(t, s.standard), func(t *testing.T, c Case) {
		t.Helper()
		ns := s.Ground.Namespace(t)
		s.apply(t, LawFamilies, ns, c.Plan)
		state := s.observe(t, LawFamilies, ns, c.Plan.Owner)
		got, want := ruleFamilies(state.Objects), ruleFamilies(c.Plan.Objects)
		LawFamilies.same(t, s.Ground.Dump(t, ns), "the plan", want, "what is observed", got)
	})
}

// ruleFamilies lists the action of each chain's rules for each family: rules of different families
// have no order.
func ruleFamilies(objects []interception.Object) string {
	var all []string
	for at, rule := range (&interception.Plan{Objects: objects}).Rules() {
		for _, family := range []interception.Family{interception.IPv4, interception.IPv6} {
			if of := rule.Match.EffectiveFamily(); of == family || of == interception.BothFamilies {
				all = append(all, fmt.Sprintf("%s/%s %s: %v\n", at.Table, at.Chain, family, rule.Action))
			}
		}
	}
	slices.Sort(all)
	return strings.Join(all, "")
}

// drift applies each mutant of each case, so that the namespace differs from the plan in a known
// way, and then makes the kernel's edits.
func (s *suite) drift(t *testing.T) {
	t.Helper()
	cases := s.supported(t, s.standard)
	s.each(t, cases, func(t *testing.T, c Case) {
		t.Helper()
		s.mutate(t, LawDrift, c.Plan, mutants(c.Plan))
	})
	kernel, ok := s.Ground.(interface{ edits(c Case) []edit })
	if !ok {
		return
	}
	for _, c := range cases {
		for _, e := range kernel.edits(c) {
			t.Run(e.name, func(t *testing.T) {
				t.Parallel()
				s.tamper(t, c.Plan, e)
			})
		}
	}
}

// priorities is drift for mutants whose entries have another priority.
func (s *suite) priorities(t *testing.T) {
	t.Helper()
	s.each(t, s.supported(t, s.standard), func(t *testing.T, c Case) {
		t.Helper()
		s.mutate(t, LawPriorities, c.Plan, shifted(c.Plan))
	})
}

// mutate applies each mutant of a plan, and compares the observed with the actual difference.
func (s *suite) mutate(t *testing.T, law Law, p *interception.Plan, mutants []mutant) {
	t.Helper()
	ns := s.Ground.Namespace(t)
	for _, m := range mutants {
		if s.New(t).Supports(m.plan) != nil {
			continue
		}
		s.apply(t, law, ns, m.plan)
		state := s.observe(t, law, ns, p.Owner)
		there := interception.State{Owner: p.Owner, Objects: m.plan.Objects}
		if isSet := func(o interception.Object) bool { _, is := o.(interception.Set); return is }; !slices.ContainsFunc(state.Objects, isSet) {
			there.Objects = m.plan.WithoutSets().Objects
		}
		want, got := interception.Diff(p, there), interception.Diff(p, state)
		what := m.name + " in " + s.Ground.Dump(t, ns)
		law.same(t, what, "the differences that there are", lines(want), "those that are found", lines(got))
		s.apply(t, law, ns, p)
		s.holds(t, law, ns, p)
	}
}

// edit changes a namespace without the dataplane's knowledge.
type edit struct {
	name string
	do   func(t testing.TB, ns *interception.Netns)
	want interception.Drift // the expected finding: its kind, place and id
}

func (s *suite) tamper(t *testing.T, p *interception.Plan, e edit) {
	t.Helper()
	ns := s.Ground.Namespace(t)
	s.apply(t, LawDrift, ns, p)
	e.do(t, ns)
	got := interception.Diff(p, s.observe(t, LawDrift, ns, p.Owner))
	if len(got) != 1 || got[0].Kind != e.want.Kind || got[0].At != e.want.At || got[0].ID != e.want.ID {
		LawDrift.broken(t, "want:\n%sfound:\n%s\nthe namespace holds:\n%s", lines([]interception.Drift{e.want}), lines(got), s.Ground.Dump(t, ns))
	}
	s.apply(t, LawDrift, ns, p)
	s.holds(t, LawDrift, ns, p)
}
