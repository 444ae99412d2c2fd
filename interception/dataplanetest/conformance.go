// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"slices"
	"testing"

	"github.com/meshcni/meshcni/interception"
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
	s := &suite{ConformanceOptions: o, standard: Cases(t)}
	for _, r := range rules() {
		if reason, without := o.Without[r.law]; without {
			t.Logf("not tested, as it is declared that this dataplane cannot have it: %q (%s): %s", string(r.law), r.says, reason)
			continue
		}
		t.Run(string(r.law), func(t *testing.T) {
			t.Parallel()
			r.check(s, t)
		})
	}
}

// suite is one run of the tests.
type suite struct {
	ConformanceOptions
	standard []Case
}

// all returns the cases that the dataplane supports, and logs the others.
func (s *suite) all(t testing.TB) []Case {
	t.Helper()
	return s.supported(t, slices.Concat(s.standard, s.Cases))
}

func (s *suite) supported(t testing.TB, cases []Case) []Case {
	t.Helper()
	dataplane := s.New(t)
	return slices.DeleteFunc(slices.Clone(cases), func(c Case) bool {
		err := dataplane.Supports(c.Plan)
		if err != nil {
			t.Logf("without case %s: %v", c.Name, err)
		}
		return err != nil
	})
}

// apply applies a plan that the dataplane supports.
func (s *suite) apply(t testing.TB, law Law, ns *interception.Netns, p *interception.Plan) {
	t.Helper()
	if err := s.New(t).Apply(t.Context(), ns, p); err != nil {
		t.Fatalf("law %q: Apply: %v\nplan:\n%s", string(law), err, p)
	}
}

func (s *suite) remove(t testing.TB, law Law, ns *interception.Netns, owner interception.Owner) {
	t.Helper()
	if err := s.New(t).Remove(t.Context(), ns, owner); err != nil {
		t.Fatalf("law %q: Remove: %v", string(law), err)
	}
}

func (s *suite) observe(t testing.TB, law Law, ns *interception.Netns, owner interception.Owner) interception.State {
	t.Helper()
	state, err := s.New(t).Observe(t.Context(), ns, owner)
	if err != nil {
		t.Fatalf("law %q: Observe: %v", string(law), err)
	}
	return state
}

// fresh returns the dump of a namespace to which only the plan was applied.
func (s *suite) fresh(t testing.TB, law Law, p *interception.Plan) string {
	t.Helper()
	ns := s.Ground.Namespace(t)
	s.apply(t, law, ns, p)
	return s.Ground.Dump(t, ns)
}

// each runs a subtest for each case.
func (s *suite) each(t *testing.T, cases []Case, test func(t *testing.T, c Case)) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			test(t, c)
		})
	}
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
	check func(*suite, *testing.T)
}

func rules() []rule {
	return []rule{
		{LawIdempotent, "applying a plan again changes nothing, also when another process does it", (*suite).idempotent},
		{LawReplaces, "whatever the owner had before, after Apply the namespace holds what a fresh one would", (*suite).replaces},
		{
			LawRemoves, "Remove takes away everything of the owner's and nothing else, and is nil when there is nothing; " +
				"a plan without objects does the same",
			(*suite).removes,
		},
		{
			LawForeign, "what others put into the namespace stays there, unchanged, and what was there before a plan is not removed with it",
			(*suite).foreign,
		},
		{
			LawAdopts, "a route or a policy rule of others serves the plan if it is the same; " +
				"one that differs in its place is an error about the plan's, which changes nothing",
			(*suite).adopts,
		},
		{LawOwnersApart, "two owners work on one namespace, at once too, and neither touches what is the other's", (*suite).ownersApart},
		{LawOrder, "rules are in the order of the plan", (*suite).order},
		{LawFamilies, "a rule is there for the families that it is about: for both, where it is about neither", (*suite).families},
		{LawObserves, "Observe of an applied plan equals it, and changes nothing", (*suite).observes},
		{LawDrift, "every difference between a plan and the namespace is observed for what it is, and the next Apply heals it", (*suite).drift},
		{LawPriorities, "an entry at another priority than that of the plan is observed, too, and healed", (*suite).priorities},
		{
			LawSupports, "Supports names what the dataplane cannot apply, Apply refuses the same before it writes anything, " +
				"and all else is put in place, not left out",
			(*suite).supports,
		},
		{
			LawRefusals, "no plan, an invalid one, a namespace that was never opened or is closed and a context that has ended are errors " +
				"that change nothing, and the host's namespace is never reached by leaving something out",
			(*suite).refusals,
		},
		{LawFailures, "after a failure at any step the namespace holds the old plan or the new one, and the next Apply heals it", (*suite).failures},
		{
			LawSets, "members of a live set of addresses have owners, change in one step, from several sides at once too, " +
				"survive every Apply of a plan with the set, and go with it; an edit that cannot be made changes nothing",
			(*suite).sets,
		},
		{LawParallel, "work on many namespaces at once ends as it does one after the other", (*suite).parallel},
		{LawPackets, "real packets go where package trace says", (*suite).packets},
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

// broken fails a test with the law, the context, and what to look at.
func (l Law) broken(t testing.TB, format string, args ...any) {
	t.Helper()
	t.Errorf("broken law %q: "+string(l.String())+".\n"+format, append([]any{string(l)}, args...)...)
}

// same fails a test unless two dumps are equal, and reports whether they are.
func (l Law) same(t testing.TB, what, nameA, a, nameB, b string) bool {
	t.Helper()
	diff := difference(nameA, a, nameB, b)
	if diff != "" {
		l.broken(t, "%s:\n%s", what, diff)
	}
	return diff == ""
}
