// SPDX-License-Identifier: Apache-2.0

package sidecar_test

import (
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/internal/testing/sample"
)

// TestSparing compares a plan made sparing with the plan of the same redirect with ExistingSpare.
func TestSparing(t *testing.T) {
	t.Parallel()
	changed := 0
	for seed := range uint64(500) {
		r := sample.Redirect(sample.Seeded(seed))
		plans := map[sidecar.Existing]*interception.Plan{}
		for _, r.Existing = range []sidecar.Existing{sidecar.ExistingCapture, sidecar.ExistingSpare} {
			plan, err := sidecar.Plan(r, interception.Facts{IPv6: seed%2 == 0}, "test-mesh")
			if err != nil {
				t.Fatal(err)
			}
			plans[r.Existing] = plan
		}
		captures, spares := plans[sidecar.ExistingCapture], plans[sidecar.ExistingSpare]
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
