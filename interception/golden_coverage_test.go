// SPDX-License-Identifier: Apache-2.0

package interception_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/redirects"
)

// features are what a plan has: ids, kinds of objects, and for each table its hooks, the conditions of its rules and entries, as they are
// or negated, and its actions.
func features(plan *interception.Plan) map[string]bool {
	all := map[string]bool{}
	note := func(format string, arguments ...any) { all[fmt.Sprintf(format, arguments...)] = true }
	for _, object := range plan.Objects {
		note("object %T", object)
		if id := reflect.ValueOf(object).FieldByName("ID"); id.IsValid() {
			note("id %s", id)
		}
	}
	for set := range plan.Sets() {
		note("set %s", set.Name)
	}
	for table := range plan.Tables() {
		for _, entry := range table.Entries {
			note("id %s", entry.ID)
			note("%s: hook %s", table.Kind, entry.Hook)
			for _, condition := range conditions(entry.Match) {
				note("%s: entry with %s", table.Kind, condition)
			}
		}
	}
	for at, rule := range plan.Rules() {
		note("id %s", rule.ID)
		note("%s: %T", at.Table, rule.Action)
		for _, condition := range conditions(rule.Match) {
			note("%s: %s", at.Table, condition)
		}
	}
	return all
}

// condition is any interception.Condition.
type condition interface {
	Present() bool
	Negated() bool
}

// conditions are the fields of a match that are there, and which of them are negated.
func conditions(m interception.Match) []string {
	var all []string
	note := func(name string, value any) {
		switch c := value.(type) {
		case condition:
			if c.Present() {
				all = append(all, fmt.Sprintf("%s negated %t", name, c.Negated()))
			}
		case interception.L4:
		default:
			if !reflect.ValueOf(value).IsZero() {
				all = append(all, name)
			}
		}
	}
	for field, value := range reflect.ValueOf(m).Fields() {
		note(field.Name, value.Interface())
	}
	note("protocol "+m.L4.Protocol().String(), m.L4.Protocol())
	note("source port", m.L4.SrcPort())
	note("destination port", m.L4.DstPort())
	note("flags", m.L4.TCPFlags())
	return all
}

// plannerFeatures are those of the plans of many random redirects.
func plannerFeatures(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	space, r, plans := redirects.New(), rand.New(rand.NewPCG(1, 2)), 0
	for range 4000 {
		in := space.Input(space.Random(r))
		if in.Redirect.Validate() != nil {
			continue
		}
		plan, err := interception.PlanSidecar(in.Redirect, in.Facts, "test-mesh")
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(all, features(plan))
		plans++
	}
	if plans < 1000 {
		t.Errorf("only %d of the random redirects are valid", plans)
	}
	return all
}

// goldenFeatures are those of each golden case.
func goldenFeatures(t *testing.T) map[string]map[string]bool {
	t.Helper()
	all := map[string]map[string]bool{}
	for _, c := range goldens(t) {
		plan, _, err := c.Plan()
		if err != nil {
			t.Fatal(err)
		}
		all[c.Name] = features(plan)
	}
	return all
}

// missing are the features that no case has.
func missing(wanted map[string]bool, cases map[string]map[string]bool) []string {
	left := maps.Clone(wanted)
	for _, has := range cases {
		for feature := range has {
			delete(left, feature)
		}
	}
	return slices.Sorted(maps.Keys(left))
}

// TestGoldensShowAllThatIsPlanned finds in some golden case every id, object, hook, condition and action that PlanSidecar can write.
func TestGoldensShowAllThatIsPlanned(t *testing.T) {
	t.Parallel()
	planned, cases := plannerFeatures(t), goldenFeatures(t)
	for _, feature := range missing(planned, cases) {
		t.Errorf("PlanSidecar can write %q, and no golden case has it", feature)
	}
	for name, has := range cases {
		for _, feature := range missing(has, map[string]map[string]bool{"planned": planned}) {
			t.Errorf("golden case %s has %q, and no random redirect does", name, feature)
		}
	}
}

// TestMissingGoldenIsNoticed takes away, one by one, the cases that alone have something.
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
