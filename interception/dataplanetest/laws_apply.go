// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/meshcni/meshcni/interception"
)

func (x *trial) idempotent() {
	x.each(x.usual(), func(x *trial, c Case) {
		x.apply(c.Plan)
		once := x.dump()
		x.apply(c.Plan)
		x.same(c.Plan.String(), "the namespace after one Apply", once, "the namespace after two", x.dump())
	})
}

// replaces walks through the cases in one namespace, through the standard ones in strides of
// several lengths, so that each follows several others, and removes the last one.
func (x *trial) replaces() {
	cases, few := x.all(), len(x.usual())
	fresh := make([]func() string, len(cases))
	for i, c := range cases {
		fresh[i] = sync.OnceValue(func() string { return x.fresh(owned(c.Plan, caseOwner)) })
	}
	empty := x.dump()
	for _, walk := range []struct{ stride, of int }{{1, len(cases)}, {2, few}, {3, few}, {5, few}, {few - 1, few}} {
		x.Run(fmt.Sprintf("stride-%d-of-%d", walk.stride, walk.of), func(t *testing.T) {
			x, last := x.trial(t, x.law), "nothing"
			for step := range walk.of + 1 {
				at := step * walk.stride % walk.of
				x.apply(owned(cases[at].Plan, caseOwner))
				what := fmt.Sprintf("case %s upon case %s", cases[at].Name, last)
				if !x.same(what, "a fresh namespace", fresh[at](), "this one", x.dump()) {
					return
				}
				last = cases[at].Name
			}
			x.remove(caseOwner)
			x.same("removed after all cases", "an empty namespace", empty, "this one", x.dump())
		})
	}
}

// owned returns the plan with another owner.
func owned(p *interception.Plan, owner interception.Owner) *interception.Plan {
	return &interception.Plan{Owner: owner, Objects: p.Objects}
}

func (x *trial) removes() {
	x.each(x.usual(), func(x *trial, c Case) {
		before := x.dump()
		for way, remove := range map[string]func(){
			"Remove":                          func() { x.remove(c.Plan.Owner) },
			"Apply of a plan without objects": func() { x.apply(&interception.Plan{Owner: c.Plan.Owner}) },
		} {
			remove()
			x.same(way+" where there was nothing", "an empty namespace", before, "the same", x.dump())
			x.apply(c.Plan)
			remove()
			x.same(way+" of "+c.Plan.String(), "the namespace before", before, "the namespace afterwards", x.dump())
		}
	})
}

func (x *trial) foreign() {
	cases := x.usual()
	x.each(cases, func(x *trial, c Case) {
		empty := x.dump()
		x.Ground.Occupy(x.T, x.ns, c.Plan)
		before := x.dump()
		if len(missing(before, empty)) == 0 {
			x.Fatal("the ground's Occupy puts nothing into the namespace that its Dump shows: there is nothing of others' to be spared")
		}
		for _, plan := range []*interception.Plan{c.Plan, cases[0].Plan, c.Plan} {
			x.apply(plan)
			if gone := missing(before, x.dump()); len(gone) > 0 {
				x.broken("gone or changed by Apply: %q\nbefore:\n%splan:\n%s", gone, before, plan)
			}
		}
		x.remove(c.Plan.Owner)
		x.same(c.Plan.String(), "the namespace before", before, "the namespace after Remove", x.dump())
	})
}

func (x *trial) adopts() {
	x.each(x.usual(), func(x *trial, c Case) {
		x.Ground.Occupy(x.T, x.ns, c.Plan)
		for range 2 {
			x.apply(c.Plan)
			if drift := interception.Diff(c.Plan, x.observe(c.Plan.Owner)); len(drift) > 0 {
				x.broken("where others have what the plan wants, there is drift: %v\nplan:\n%s", drift, c.Plan)
			}
		}
		for id, other := range inTheWay(c.Plan) {
			x := x.anew()
			x.Ground.Occupy(x.T, x.ns, &interception.Plan{Owner: c.Plan.Owner, Objects: []interception.Object{other}})
			before := x.dump()
			err := x.New(x.T).Apply(x.Context(), x.ns, c.Plan)
			if refused, ok := errors.AsType[*interception.ApplyError](err); !ok || refused.At != string(id) {
				x.broken("beside %v of others: got the error %v, want one about %s", other, err, id)
			}
			x.same(fmt.Sprintf("beside %v", other), "the namespace before", before, "the namespace afterwards", x.dump())
		}
	})
}

// inTheWay returns objects that differ from those of the plan, and take their places.
func inTheWay(p *interception.Plan) map[interception.RuleID]interception.Object {
	others := map[interception.RuleID]interception.Object{}
	for route := range interception.ObjectsOf[interception.Route](p) {
		if id := route.ID; route.Type == interception.RouteLocal {
			route.Type = interception.RouteUnicast
			others[id] = route
		}
	}
	for rule := range interception.ObjectsOf[interception.PolicyRule](p) {
		id := rule.ID
		rule.Table++
		others[id] = rule
	}
	return others
}

// rounds is how often two owners apply concurrently.
const rounds = 5

func (x *trial) ownersApart() {
	cases := x.usual()
	one, other := cases[0].Plan, owned(cases[min(3, len(cases)-1)].Plan, otherOwner)
	x.apply(one)
	alone := x.dump()
	for range rounds {
		var group sync.WaitGroup
		for _, plan := range []*interception.Plan{one, other} {
			group.Go(func() {
				if err := x.New(x.T).Apply(x.Context(), x.ns, plan); err != nil {
					x.broken("Apply for %s while another owner works: %v", plan.Owner, err)
				}
			})
		}
		group.Wait()
	}
	both := x.dump()
	for _, plan := range []*interception.Plan{one, other} {
		if gone := missing(x.fresh(plan), both); len(gone) > 0 {
			x.broken("of %s is missing: %q\nthe namespace holds:\n%s", plan.Owner, gone, both)
		}
		x.holds(plan)
	}
	x.remove(other.Owner)
	x.same("Remove of one owner", "the other's alone", alone, "the namespace afterwards", x.dump())
}

// namespaces is the number of namespaces in concurrent use.
const namespaces = 50

func (x *trial) parallel() {
	cases := x.usual()
	fresh := make([]string, len(cases))
	for i, c := range cases {
		fresh[i] = x.fresh(c.Plan)
	}
	before, dataplane := x.dump(), x.New(x.T)
	trials := make([]*trial, namespaces)
	for i := range trials {
		trials[i] = x.anew()
	}
	// atOnce works on all namespaces at once.
	atOnce := func(work func(i int, ns *interception.Netns) error) {
		var group sync.WaitGroup
		for i, x := range trials {
			group.Go(func() {
				if err := work(i, x.ns); err != nil {
					x.broken("namespace %d: %v", i, err)
				}
			})
		}
		group.Wait()
	}
	plan := func(i int) *interception.Plan { return cases[i%len(cases)].Plan }
	atOnce(func(i int, ns *interception.Netns) error { return dataplane.Apply(x.Context(), ns, plan(i+1)) })
	atOnce(func(i int, ns *interception.Netns) error { return dataplane.Apply(x.Context(), ns, plan(i)) })
	for i, x := range trials {
		what := fmt.Sprintf("namespace %d, case %s", i, cases[i%len(cases)].Name)
		x.same(what, "one at a time", fresh[i%len(cases)], "many at once", x.dump())
	}
	atOnce(func(i int, ns *interception.Netns) error { return dataplane.Remove(x.Context(), ns, plan(i).Owner) })
	for i, x := range trials {
		what := fmt.Sprintf("namespace %d, case %s", i, cases[i%len(cases)].Name)
		x.same(what, "an empty namespace", before, "after many Removes", x.dump())
	}
}
