// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"slices"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/victim"
)

// ConformanceOptions configure [Conformance]. A dataplane for Linux needs only New.
type ConformanceOptions struct {
	// New returns a new dataplane. It is called often, as if by as many processes: each must be
	// able to replace and remove what another has put into a namespace.
	New func(t testing.TB) interception.Dataplane
	// Without names the laws that the dataplane cannot keep, each with the reason, which the test
	// logs. All other laws are tested.
	Without map[Law]string
	// Ground creates the namespaces; nil means [Kernel].
	Ground Ground
	// Cases are plans to test in addition to [Cases].
	Cases []Case
	// Failing returns a dataplane whose n-th step, counted from 1, fails; it applies a plan with
	// fewer steps. The dataplane defines a step: a message to the kernel, a program that it runs.
	// If Failing is nil, only contexts end between steps.
	Failing func(t testing.TB, n int) interception.Dataplane
	// Notes reports whether a line of the ground's dump is a note that the dataplane keeps about
	// the namespace, without any effect; a failure may leave notes. Nil is for a dataplane that
	// keeps none.
	Notes func(line string) bool
}

// Conformance tests that a dataplane keeps the laws of [interception.Dataplane], each in a subtest
// with its name. Call it from a test of its own, in a package whose TestMain calls [RunTests]:
//
//	func TestConformance(t *testing.T) {
//		dataplanetest.Conformance(t, dataplanetest.ConformanceOptions{
//			New: func(t testing.TB) interception.Dataplane { return mydataplane.New() },
//		})
//	}
//
// The law about sets kills processes in the midst of edits: copies of the test's program that run
// the same test again, up to the call of Conformance.
//
// A failure reports the broken law, the plan that broke it, and the content of the namespace. A
// panic of the dataplane fails only the law in which it happens.
func Conformance(t *testing.T, o ConformanceOptions) {
	t.Helper()
	if o.New == nil {
		t.Fatal("ConformanceOptions.New is nil: say how the dataplane is made")
	}
	for law, reason := range o.Without {
		if !slices.Contains(Laws(), law) || reason == "" {
			t.Fatalf("ConformanceOptions.Without[%q] = %q: name one of %q, and the reason", string(law), reason, Laws())
		}
	}
	if o.Ground == nil {
		o.Ground = Kernel{}
	}
	if o.Notes == nil {
		o.Notes = func(string) bool { return false }
	}
	o.New = guarded(o.New)
	if failing := o.Failing; failing != nil {
		o.Failing = func(t testing.TB, n int) interception.Dataplane {
			t.Helper()
			return guard{failing(t, n), t}
		}
	}
	if task, is := victim.Task(); is {
		o.beEditor(t, task)
		return
	}
	s := &suite{ConformanceOptions: o, standard: Cases(t)}
	for _, r := range rules() {
		if reason, without := o.Without[r.law]; without {
			t.Logf("not tested, as it is declared that this dataplane cannot have it: %q (%s): %s", string(r.law), r.says, reason)
			continue
		}
		t.Run(string(r.law), func(t *testing.T) {
			t.Parallel()
			r.check(s.trial(t, r.law))
		})
	}
}

// suite is one run of the tests.
type suite struct {
	ConformanceOptions
	standard []Case
}

// trial is a law on trial: in a test, and in a namespace that was empty at first.
type trial struct {
	*suite
	*testing.T
	law Law
	ns  *interception.Netns
}

func (s *suite) trial(t *testing.T, law Law) *trial {
	t.Helper()
	return &trial{s, t, law, s.Ground.Namespace(t)}
}

// anew returns the trial in another namespace.
func (x *trial) anew() *trial { return x.trial(x.T, x.law) }

// run runs a subtest in another namespace.
func (x *trial) run(name string, test func(x *trial)) {
	x.Run(name, func(t *testing.T) {
		t.Parallel()
		test(x.trial(t, x.law))
	})
}

// each runs a subtest for each case.
func (x *trial) each(cases []Case, test func(x *trial, c Case)) {
	for _, c := range cases {
		x.run(c.Name, func(x *trial) { test(x, c) })
	}
}

// all returns the cases that the dataplane supports, and logs the others.
func (x *trial) all() []Case { return x.supported(slices.Concat(x.standard, x.Cases)) }

// usual returns those of the standard cases.
func (x *trial) usual() []Case { return x.supported(x.standard) }

func (x *trial) supported(cases []Case) []Case {
	dataplane := x.New(x.T)
	return slices.DeleteFunc(slices.Clone(cases), func(c Case) bool {
		err := dataplane.Supports(c.Plan)
		if err != nil {
			x.Logf("without case %s: %v", c.Name, err)
		}
		return err != nil
	})
}

// apply applies a plan that the dataplane supports.
func (x *trial) apply(p *interception.Plan) {
	if err := x.New(x.T).Apply(x.Context(), x.ns, p); err != nil {
		x.Fatalf("law %q: Apply: %v\nplan:\n%s", string(x.law), err, p)
	}
}

func (x *trial) remove(owner interception.Owner) {
	if err := x.New(x.T).Remove(x.Context(), x.ns, owner); err != nil {
		x.Fatalf("law %q: Remove: %v", string(x.law), err)
	}
}

func (x *trial) observe(owner interception.Owner) interception.State {
	state, err := x.New(x.T).Observe(x.Context(), x.ns, owner)
	if err != nil {
		x.Fatalf("law %q: Observe: %v", string(x.law), err)
	}
	return state
}

func (x *trial) dump() string { return x.Ground.Dump(x.T, x.ns) }

// fresh returns the dump of a namespace to which only the plan was applied.
func (x *trial) fresh(p *interception.Plan) string {
	x = x.anew()
	x.apply(p)
	return x.dump()
}

// broken fails the test with the law, the context, and what to look at.
func (x *trial) broken(format string, args ...any) {
	x.Errorf("broken law %q: "+x.law.String()+".\n"+format, append([]any{string(x.law)}, args...)...)
}

// same fails the test unless two dumps are equal, and reports whether they are.
func (x *trial) same(what, nameA, a, nameB, b string) bool {
	diff := difference(nameA, a, nameB, b)
	if diff != "" {
		x.broken("%s:\n%s", what, diff)
	}
	return diff == ""
}

// Law is one of the laws that [Conformance] tests. Its text is the name of the subtest.
type Law string

// The laws.
const (
	LawIdempotent  Law = "idempotent"
	LawReplaces    Law = "replaces"
	LawRemoves     Law = "removes"
	LawForeign     Law = "foreign"
	LawAdopts      Law = "adopts"
	LawOwnersApart Law = "owners-apart"
	LawOrder       Law = "order"
	LawFamilies    Law = "families"
	LawObserves    Law = "observes"
	LawDrift       Law = "drift"
	LawPriorities  Law = "priorities"
	LawSupports    Law = "supports"
	LawRefusals    Law = "refusals"
	LawFailures    Law = "failures"
	LawSets        Law = "sets"
	LawParallel    Law = "parallel"
	LawPackets     Law = "packets"
)

// rule is a law with its description and its test.
type rule struct {
	law   Law
	says  string
	check func(*trial)
}

func rules() []rule {
	return []rule{
		{LawIdempotent, "applying a plan again changes nothing, also when another process does it", (*trial).idempotent},
		{LawReplaces, "whatever the owner had before, after Apply the namespace holds what a fresh one would", (*trial).replaces},
		{
			LawRemoves, "Remove takes away everything of the owner's and nothing else, and is nil when there is nothing; " +
				"a plan without objects does the same",
			(*trial).removes,
		},
		{
			LawForeign, "what others put into the namespace stays there, unchanged, and what was there before a plan is not removed with it",
			(*trial).foreign,
		},
		{
			LawAdopts, "a route or a policy rule of others serves the plan if it is the same; " +
				"one that differs in its place is an error about the plan's, which changes nothing",
			(*trial).adopts,
		},
		{LawOwnersApart, "two owners work on one namespace, at once too, and neither touches what is the other's", (*trial).ownersApart},
		{LawOrder, "rules are in the order of the plan", (*trial).order},
		{LawFamilies, "a rule is there for the families that it is about: for both, where it is about neither", (*trial).families},
		{LawObserves, "Observe of an applied plan equals it, and changes nothing", (*trial).observes},
		{LawDrift, "every difference between a plan and the namespace is observed for what it is, and the next Apply heals it", (*trial).drift},
		{LawPriorities, "an entry at another priority than that of the plan is observed, too, and healed", (*trial).priorities},
		{
			LawSupports, "Supports names what the dataplane cannot apply, Apply refuses the same before it writes anything, " +
				"and all else is put in place, not left out",
			(*trial).supports,
		},
		{
			LawRefusals, "no plan, an invalid one, a namespace that was never opened or is closed and a context that has ended are errors " +
				"that change nothing, and the host's namespace is never reached by leaving something out",
			(*trial).refusals,
		},
		{LawFailures, "after a failure at any step the namespace holds the old plan or the new one, and the next Apply heals it", (*trial).failures},
		{
			LawSets, "members of a live set of addresses have owners, change in one step, from several sides at once too, " +
				"survive every Apply of a plan with the set, and go with it; an edit that cannot be made changes nothing, " +
				"and a killed one everything or nothing",
			(*trial).sets,
		},
		{LawParallel, "work on many namespaces at once ends as it does one after the other", (*trial).parallel},
		{LawPackets, "real packets go where package trace says", (*trial).packets},
	}
}

// Laws lists the laws, in the order of their tests.
func Laws() []Law {
	var laws []Law
	for _, r := range rules() {
		laws = append(laws, r.law)
	}
	return laws
}

// String returns the law's description.
func (l Law) String() string {
	for _, r := range rules() {
		if r.law == l {
			return r.says
		}
	}
	return "no law: " + string(l)
}
