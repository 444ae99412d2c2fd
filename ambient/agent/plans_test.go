// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
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

// TestPlansAreMadeOnce asks for plans with settings that are alike, and with others.
func TestPlansAreMadeOnce(t *testing.T) {
	t.Parallel()
	var known plans
	created := 0
	of := func(s settings) *interception.Plan {
		plan, err := known.of(s, func() (*interception.Plan, error) {
			created++
			return ambient.PodPlan(s.overrides, ambient.IstioNumbers(), s.facts, "test-mesh")
		})
		if err != nil {
			t.Fatal(err)
		}
		return plan
	}
	first := of(settings{overrides: ambient.DefaultOverrides(false)})
	if of(settings{overrides: ambient.DefaultOverrides(false)}) != first || created != 1 {
		t.Errorf("the plan was made %d times, want once", created)
	}
	for i, other := range []settings{
		{overrides: ambient.DefaultOverrides(true)},
		{overrides: ambient.DefaultOverrides(false), facts: interception.Facts{IPv6: true}},
		{overrides: ambient.DefaultOverrides(false), sparing: true},
	} {
		if of(other); created != i+2 {
			t.Errorf("settings %d are taken for others", i)
		}
	}
	refusal := errors.New("refused")
	_, err := known.of(settings{facts: interception.Facts{LoopbackIPv6: true}}, func() (*interception.Plan, error) { return nil, refusal })
	if !errors.Is(err, refusal) {
		t.Errorf("got %v, want that the plan is refused", err)
	}
}
