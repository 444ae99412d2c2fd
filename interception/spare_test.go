// SPDX-License-Identifier: Apache-2.0

package interception_test

import (
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/sample"
)

// TestSparing holds a plan that is made sparing to what the planner makes of the same redirect.
func TestSparing(t *testing.T) {
	t.Parallel()
	changed := 0
	for seed := range uint64(500) {
		r := sample.Redirect(sample.Seeded(seed))
		plans := map[interception.Existing]*interception.Plan{}
		for _, r.Existing = range []interception.Existing{interception.ExistingCapture, interception.ExistingSpare} {
			plan, err := interception.PlanSidecar(r, interception.Facts{IPv6: seed%2 == 0}, "test-mesh")
			if err != nil {
				t.Fatal(err)
			}
			plans[r.Existing] = plan
		}
		captures, spares := plans[interception.ExistingCapture], plans[interception.ExistingSpare]
		before := captures.String()
		made := captures.Sparing()
		if made.String() != spares.String() {
			t.Fatalf("seed %d: made sparing:\n%s\nplanned so:\n%s", seed, made, spares)
		}
		if captures.String() != before {
			t.Fatalf("seed %d: the plan itself has changed:\n%s", seed, captures)
		}
		if err := made.Validate(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if !made.IsSparing() {
			t.Errorf("seed %d: sparing twice is not sparing once", seed)
		}
		if made != captures {
			changed++
		}
	}
	if changed < 400 {
		t.Errorf("only %d plans had something to spare", changed)
	}
}

// TestSparingForeignPlan gives the rule an id of its own, where the plan has used the usual one.
func TestSparingForeignPlan(t *testing.T) {
	t.Parallel()
	plan, err := interception.Build("other-mesh", func(b *interception.Builder) {
		for _, chain := range []interception.ChainName{"one", "two"} {
			c := b.NAT(chain)
			c.Entry(interception.Output, interception.Match{L4: interception.TCP()}, "connections")
			c.Do(interception.RuleID(chain+".capture"), interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 15001}, "captured")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	made := plan.Sparing()
	if err := made.Validate(); err != nil {
		t.Errorf("%v\n%s", err, made)
	}
	ids := map[interception.RuleID]bool{}
	for _, rule := range made.Rules() {
		ids[rule.ID] = true
	}
	if !ids["outbound.spare"] || !ids["outbound.spare.two"] || len(ids) != 4 {
		t.Errorf("got\n%s", made)
	}
}
