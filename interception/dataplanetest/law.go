// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import "testing"

// Law is one of the laws that [Conformance] holds a dataplane to. Its text is the name of the subtest.
type Law string

// The laws.
const (
	LawIdempotent  Law = "idempotent"
	LawReplaces    Law = "replaces"
	LawRemoves     Law = "removes"
	LawForeign     Law = "foreign"
	LawOwnersApart Law = "owners-apart"
	LawOrder       Law = "order"
	LawFamilies    Law = "families"
	LawObserves    Law = "observes"
	LawDrift       Law = "drift"
	LawPriorities  Law = "priorities"
	LawSupports    Law = "supports"
	LawRefusals    Law = "refusals"
	LawFailures    Law = "failures"
	LawParallel    Law = "parallel"
	LawPackets     Law = "packets"
)

// rule is a law with what it says, and its test.
type rule struct {
	law   Law
	says  string
	check func(*suite, *testing.T)
}

func rules() []rule {
	return []rule{
		{LawIdempotent, "applying a plan again changes nothing, also when another process does it", (*suite).idempotent},
		{LawReplaces, "whatever the owner had before, behind Apply the namespace holds what a fresh one would", (*suite).replaces},
		{
			LawRemoves, "Remove takes away everything of the owner's and nothing else, and is nil when there is nothing; " +
				"a plan without objects does the same",
			(*suite).removes,
		},
		{
			LawForeign, "what others put into the namespace stays there, unchanged, and what was there before a plan is not removed with it",
			(*suite).foreign,
		},
		{LawOwnersApart, "two owners work on one namespace, at once too, and neither touches what is the other's", (*suite).ownersApart},
		{LawOrder, "rules stand in the order of the plan", (*suite).order},
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
		{LawParallel, "work on many namespaces at once ends as it does one after the other", (*suite).parallel},
		{LawPackets, "real packets go where package trace says", (*suite).packets},
	}
}

// Laws lists the laws, in the order in which they are tested.
func Laws() []Law {
	var laws []Law
	for _, r := range rules() {
		laws = append(laws, r.law)
	}
	return laws
}

// String is what the law says.
func (l Law) String() string {
	for _, r := range rules() {
		if r.law == l {
			return r.says
		}
	}
	return "no law: " + string(l)
}

// broken fails a test: which law, in what, and what to look at.
func (l Law) broken(t testing.TB, format string, args ...any) {
	t.Helper()
	t.Errorf("broken law %q: "+string(l.String())+".\n"+format, append([]any{string(l)}, args...)...)
}
