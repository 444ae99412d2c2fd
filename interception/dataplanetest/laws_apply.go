// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/meshcni/meshcni/interception"
)

func (s *suite) idempotent(t *testing.T) {
	t.Helper()
	s.each(t, s.supported(t, s.standard), func(t *testing.T, c Case) {
		t.Helper()
		ns := s.Ground.Namespace(t)
		s.apply(t, LawIdempotent, ns, c.Plan)
		once := s.Ground.Dump(t, ns)
		s.apply(t, LawIdempotent, ns, c.Plan)
		LawIdempotent.same(t, c.Plan.String(), "the namespace after one Apply", once, "the namespace after two", s.Ground.Dump(t, ns))
	})
}

// replaces walks through the cases in one namespace, through the standard ones in strides of
// several lengths, so that each follows several others, and removes the last one.
func (s *suite) replaces(t *testing.T) {
	t.Helper()
	cases, few := s.all(t), len(s.supported(t, s.standard))
	fresh := make([]func() string, len(cases))
	for i, c := range cases {
		fresh[i] = sync.OnceValue(func() string { return s.fresh(t, LawReplaces, owned(c.Plan, caseOwner)) })
	}
	empty := s.Ground.Dump(t, s.Ground.Namespace(t))
	for _, walk := range []struct{ stride, of int }{{1, len(cases)}, {2, few}, {3, few}, {5, few}, {few - 1, few}} {
		t.Run(fmt.Sprintf("stride-%d-of-%d", walk.stride, walk.of), func(t *testing.T) {
			ns, last := s.Ground.Namespace(t), "nothing"
			for step := range walk.of + 1 {
				at := step * walk.stride % walk.of
				s.apply(t, LawReplaces, ns, owned(cases[at].Plan, caseOwner))
				what := fmt.Sprintf("case %s upon case %s", cases[at].Name, last)
				if !LawReplaces.same(t, what, "a fresh namespace", fresh[at](), "this one", s.Ground.Dump(t, ns)) {
					return
				}
				last = cases[at].Name
			}
			s.remove(t, LawReplaces, ns, caseOwner)
			LawReplaces.same(t, "removed after all cases", "an empty namespace", empty, "this one", s.Ground.Dump(t, ns))
		})
	}
}

// owned returns the plan with another owner.
func owned(p *interception.Plan, owner interception.Owner) *interception.Plan {
	return &interception.Plan{Owner: owner, Objects: p.Objects}
}

func (s *suite) removes(t *testing.T) {
	t.Helper()
	s.each(t, s.supported(t, s.standard), func(t *testing.T, c Case) {
		t.Helper()
		ns := s.Ground.Namespace(t)
		before := s.Ground.Dump(t, ns)
		for way, remove := range map[string]func(){
			"Remove":                          func() { s.remove(t, LawRemoves, ns, c.Plan.Owner) },
			"Apply of a plan without objects": func() { s.apply(t, LawRemoves, ns, &interception.Plan{Owner: c.Plan.Owner}) },
		} {
			remove()
			LawRemoves.same(t, way+" where there was nothing", "an empty namespace", before, "the same", s.Ground.Dump(t, ns))
			s.apply(t, LawRemoves, ns, c.Plan)
			remove()
			LawRemoves.same(t, way+" of "+c.Plan.String(), "the namespace before", before, "the namespace afterwards", s.Ground.Dump(t, ns))
		}
	})
}

func (s *suite) foreign(t *testing.T) {
	t.Helper()
	cases := s.supported(t, s.standard)
	s.each(t, cases, func(t *testing.T, c Case) {
		t.Helper()
		ns := s.Ground.Namespace(t)
		empty := s.Ground.Dump(t, ns)
		s.Ground.Occupy(t, ns, c.Plan)
		before := s.Ground.Dump(t, ns)
		if len(missing(before, empty)) == 0 {
			t.Fatal("the ground's Occupy puts nothing into the namespace that its Dump shows: there is nothing of others' to be spared")
		}
		for _, plan := range []*interception.Plan{c.Plan, cases[0].Plan, c.Plan} {
			s.apply(t, LawForeign, ns, plan)
			if gone := missing(before, s.Ground.Dump(t, ns)); len(gone) > 0 {
				LawForeign.broken(t, "gone or changed by Apply: %q\nbefore:\n%splan:\n%s", gone, before, plan)
			}
		}
		s.remove(t, LawForeign, ns, c.Plan.Owner)
		LawForeign.same(t, c.Plan.String(), "the namespace before", before, "the namespace after Remove", s.Ground.Dump(t, ns))
	})
}

func (s *suite) adopts(t *testing.T) {
	t.Helper()
	s.each(t, s.supported(t, s.standard), func(t *testing.T, c Case) {
		t.Helper()
		ns := s.Ground.Namespace(t)
		s.Ground.Occupy(t, ns, c.Plan)
		for range 2 {
			s.apply(t, LawAdopts, ns, c.Plan)
			if drift := interception.Diff(c.Plan, s.observe(t, LawAdopts, ns, c.Plan.Owner)); len(drift) > 0 {
				LawAdopts.broken(t, "where others have what the plan wants, there is drift: %v\nplan:\n%s", drift, c.Plan)
			}
		}
		for id, other := range inTheWay(c.Plan) {
			ns := s.Ground.Namespace(t)
			s.Ground.Occupy(t, ns, &interception.Plan{Owner: c.Plan.Owner, Objects: []interception.Object{other}})
			before := s.Ground.Dump(t, ns)
			err := s.New(t).Apply(t.Context(), ns, c.Plan)
			if refused, ok := errors.AsType[*interception.ApplyError](err); !ok || refused.At != string(id) {
				LawAdopts.broken(t, "beside %v of others: got the error %v, want one about %s", other, err, id)
			}
			LawAdopts.same(t, fmt.Sprintf("beside %v", other), "the namespace before", before, "the namespace afterwards", s.Ground.Dump(t, ns))
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

func (s *suite) ownersApart(t *testing.T) {
	t.Helper()
	cases := s.supported(t, s.standard)
	one, other := cases[0].Plan, owned(cases[min(3, len(cases)-1)].Plan, otherOwner)
	ns := s.Ground.Namespace(t)
	s.apply(t, LawOwnersApart, ns, one)
	alone := s.Ground.Dump(t, ns)
	for range rounds {
		var group sync.WaitGroup
		for _, plan := range []*interception.Plan{one, other} {
			group.Go(func() {
				if err := s.New(t).Apply(t.Context(), ns, plan); err != nil {
					LawOwnersApart.broken(t, "Apply for %s while another owner works: %v", plan.Owner, err)
				}
			})
		}
		group.Wait()
	}
	both := s.Ground.Dump(t, ns)
	for _, plan := range []*interception.Plan{one, other} {
		if gone := missing(s.fresh(t, LawOwnersApart, plan), both); len(gone) > 0 {
			LawOwnersApart.broken(t, "of %s is missing: %q\nthe namespace holds:\n%s", plan.Owner, gone, both)
		}
		s.holds(t, LawOwnersApart, ns, plan)
	}
	s.remove(t, LawOwnersApart, ns, other.Owner)
	LawOwnersApart.same(t, "Remove of one owner", "the other's alone", alone, "the namespace afterwards", s.Ground.Dump(t, ns))
}

// namespaces is the number of namespaces in concurrent use.
const namespaces = 50

func (s *suite) parallel(t *testing.T) {
	t.Helper()
	cases := s.supported(t, s.standard)
	fresh := make([]string, len(cases))
	for i, c := range cases {
		fresh[i] = s.fresh(t, LawParallel, c.Plan)
	}
	before := s.Ground.Dump(t, s.Ground.Namespace(t))
	handles, dataplane := make([]*interception.Netns, namespaces), s.New(t)
	for i := range handles {
		handles[i] = s.Ground.Namespace(t)
	}
	at := func(i int) int { return i % len(cases) }
	atOnce(t, handles, func(i int) error { return dataplane.Apply(t.Context(), handles[i], cases[at(i+1)].Plan) })
	atOnce(t, handles, func(i int) error { return dataplane.Apply(t.Context(), handles[i], cases[at(i)].Plan) })
	for i, ns := range handles {
		what := fmt.Sprintf("namespace %d, case %s", i, cases[at(i)].Name)
		LawParallel.same(t, what, "one at a time", fresh[at(i)], "many at once", s.Ground.Dump(t, ns))
	}
	atOnce(t, handles, func(i int) error { return dataplane.Remove(t.Context(), handles[i], cases[at(i)].Plan.Owner) })
	for i, ns := range handles {
		what := fmt.Sprintf("namespace %d, case %s", i, cases[at(i)].Name)
		LawParallel.same(t, what, "an empty namespace", before, "after many Removes", s.Ground.Dump(t, ns))
	}
}

// atOnce works on all namespaces at once.
func atOnce(t *testing.T, handles []*interception.Netns, work func(i int) error) {
	t.Helper()
	var group sync.WaitGroup
	for i := range handles {
		group.Go(func() {
			if err := work(i); err != nil {
				LawParallel.broken(t, "namespace %d: %v", i, err)
			}
		})
	}
	group.Wait()
}
