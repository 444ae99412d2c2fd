// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
)

// TestPlansAreShared makes the plans of pods alike, and of one with settings of its own.
func TestPlansAreShared(t *testing.T) {
	t.Parallel()
	var known plans
	made := func(dns bool) *interception.Plan {
		plan, err := ambient.PodPlan(ambient.DefaultOverrides(dns), ambient.IstioNumbers(), interception.Facts{IPv6: true}, "test-mesh")
		if err != nil {
			t.Fatal(err)
		}
		return plan
	}
	first := known.share(made(false))
	if other := known.share(made(true)); other == first {
		t.Error("another plan is taken for the first one")
	}
	if known.share(made(false)) != first {
		t.Error("an equal plan is kept twice")
	}
	for i := range 2 * mostPlans {
		known.share(&interception.Plan{Owner: interception.Owner(fmt.Sprint(i))})
	}
	if len(known.known) != mostPlans {
		t.Errorf("%d plans are kept, want %d", len(known.known), mostPlans)
	}
	if known.share(made(false)) == first {
		t.Error("the oldest plan is kept")
	}
}
