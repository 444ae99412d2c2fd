// SPDX-License-Identifier: Apache-2.0

package sidecar_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/internal/testing/golden"
	"github.com/meshcni/meshcni/internal/testing/sample"
)

// plannerFeatures returns the features of the plans of many random redirects.
func plannerFeatures(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	space, r, plans := sample.NewSpace(), rand.New(rand.NewPCG(1, 2)), 0
	for range 4000 {
		in := space.Input(space.Random(r))
		if in.Redirect.Validate() != nil {
			continue
		}
		plan, err := sidecar.Plan(in.Redirect, in.Facts, "test-mesh")
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(all, golden.Features(plan))
		plans++
	}
	if plans < 1000 {
		t.Errorf("only %d of the random redirects are valid", plans)
	}
	return all
}

// goldenFeatures returns the features of each golden case.
func goldenFeatures(t *testing.T) map[string]map[string]bool {
	t.Helper()
	all := map[string]map[string]bool{}
	for _, c := range goldens(t) {
		plan, _, err := c.Plan()
		if err != nil {
			t.Fatal(err)
		}
		all[c.Name] = golden.Features(plan)
	}
	return all
}

// missing returns the features that no case has.
func missing(wanted map[string]bool, cases map[string]map[string]bool) []string {
	left := maps.Clone(wanted)
	for _, has := range cases {
		for feature := range has {
			delete(left, feature)
		}
	}
	return slices.Sorted(maps.Keys(left))
}

// TestGoldensShowAllThatIsPlanned finds every feature that Plan can write in some golden case.
func TestGoldensShowAllThatIsPlanned(t *testing.T) {
	t.Parallel()
	planned, cases := plannerFeatures(t), goldenFeatures(t)
	for _, feature := range missing(planned, cases) {
		t.Errorf("Plan can write %q, and no golden case has it", feature)
	}
	for name, has := range cases {
		for _, feature := range missing(has, map[string]map[string]bool{"planned": planned}) {
			t.Errorf("golden case %s has %q, and no random redirect does", name, feature)
		}
	}
}

// TestMissingGoldenIsNoticed removes, one by one, the cases with a unique feature.
func TestMissingGoldenIsNoticed(t *testing.T) {
	t.Parallel()
	planned, cases := plannerFeatures(t), goldenFeatures(t)
	holders := map[string][]string{}
	for name, has := range cases {
		for feature := range has {
			holders[feature] = append(holders[feature], name)
		}
	}
	alone := 0
	for feature, names := range holders {
		if len(names) > 1 {
			continue
		}
		alone++
		others := maps.Clone(cases)
		delete(others, names[0])
		if !slices.Contains(missing(planned, others), feature) {
			t.Errorf("without the golden case %s nobody notices that %q is missing", names[0], feature)
		}
	}
	if alone == 0 {
		t.Error("every feature is in several cases: this test shows nothing")
	}
}
