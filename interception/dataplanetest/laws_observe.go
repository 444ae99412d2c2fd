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
func (x *trial) holds(p *interception.Plan) {
	if _, without := x.Without[LawObserves]; without {
		return
	}
	state := x.observe(p.Owner)
	if drifts := interception.Diff(p, state); len(drifts) > 0 {
		x.broken("Observe differs from the plan of %s that was applied:\n%s\nobserved:\n%s\nthe namespace holds:\n%s",
			p.Owner, lines(drifts), text(state), x.dump())
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

func (x *trial) observes() {
	x.each(x.all(), func(x *trial, c Case) {
		nothing := x.observe(c.Plan.Owner)
		if len(nothing.Objects) > 0 {
			x.broken("in a namespace that has nothing:\n%s", text(nothing))
		}
		x.apply(c.Plan)
		before := x.dump()
		x.holds(c.Plan)
		x.same("Observe", "the namespace before", before, "the namespace afterwards", x.dump())
		if state := x.observe(c.Plan.Owner); state.Owner != c.Plan.Owner {
			x.broken("the state's owner is %q, want %q", state.Owner, c.Plan.Owner)
		}
		if state := x.observe(otherOwner); len(state.Objects) > 0 {
			x.broken("%s, who has nothing there, has:\n%s", otherOwner, text(state))
		}
		x.remove(c.Plan.Owner)
		if state := x.observe(c.Plan.Owner); len(state.Objects) > 0 {
			x.broken("after Remove:\n%s", text(state))
		}
	})
}

func (x *trial) order() {
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
			x.Fatal(err)
		}
		plans = append(plans, plan)
	}
	for _, plan := range slices.Concat(plans, plans) {
		x.apply(plan)
		var got, want []string
		state := x.observe(plan.Owner)
		for _, rule := range (&interception.Plan{Objects: state.Objects}).Rules() {
			got = append(got, fmt.Sprint(rule.Match, rule.Action))
		}
		for _, rule := range plan.Rules() {
			want = append(want, fmt.Sprint(rule.Match, rule.Action))
		}
		if !slices.Equal(got, want) {
			x.broken("observed %q\nplan     %q\nthe namespace holds:\n%s", got, want, x.dump())
		}
	}
}

func (x *trial) families() {
	x.each(x.usual(), func(x *trial, c Case) {
		x.apply(c.Plan)
		state := x.observe(c.Plan.Owner)
		got, want := ruleFamilies(state.Objects), ruleFamilies(c.Plan.Objects)
		if got != want { // only then is the dump worth its time
			x.same(x.dump(), "the plan", want, "what is observed", got)
		}
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
func (x *trial) drift() {
	cases := x.usual()
	x.each(cases, func(x *trial, c Case) {
		x.mutate(c.Plan, mutants(c.Plan))
	})
	kernel, ok := x.Ground.(interface{ edits(c Case) []edit })
	if !ok {
		return
	}
	for _, c := range cases {
		for _, e := range kernel.edits(c) {
			x.run(e.name, func(x *trial) { x.tamper(c.Plan, e) })
		}
	}
}

// priorities is drift for mutants whose entries have another priority.
func (x *trial) priorities() {
	x.each(x.usual(), func(x *trial, c Case) {
		x.mutate(c.Plan, shifted(c.Plan))
	})
}

// mutate applies each mutant of a plan, and compares the observed with the actual difference.
func (x *trial) mutate(p *interception.Plan, mutants []mutant) {
	for _, m := range mutants {
		if x.New(x.T).Supports(m.plan) != nil {
			continue
		}
		x.apply(m.plan)
		state := x.observe(p.Owner)
		there := interception.State{Owner: p.Owner, Objects: m.plan.Objects}
		if isSet := func(o interception.Object) bool { _, is := o.(interception.Set); return is }; !slices.ContainsFunc(state.Objects, isSet) {
			there.Objects = m.plan.WithoutSets().Objects
		}
		want, got := lines(interception.Diff(p, there)), lines(interception.Diff(p, state))
		if got != want { // only then is the dump worth its time
			x.same(m.name+" in "+x.dump(), "the differences that there are", want, "those that are found", got)
		}
		x.apply(p)
		x.holds(p)
	}
}

// edit changes a namespace without the dataplane's knowledge.
type edit struct {
	name string
	do   func(t testing.TB, ns *interception.Netns)
	want interception.Drift // the expected finding: its kind, place and id
}

func (x *trial) tamper(p *interception.Plan, e edit) {
	x.apply(p)
	e.do(x.T, x.ns)
	got := interception.Diff(p, x.observe(p.Owner))
	if len(got) != 1 || got[0].Kind != e.want.Kind || got[0].At != e.want.At || got[0].ID != e.want.ID {
		x.broken("want:\n%sfound:\n%s\nthe namespace holds:\n%s", lines([]interception.Drift{e.want}), lines(got), x.dump())
	}
	x.apply(p)
	x.holds(p)
}
