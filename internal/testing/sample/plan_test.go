// SPDX-License-Identifier: Apache-2.0

package sample_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sample"
)

// TestRulesComplete checks that random plans have every condition, as it is and negated, and
// every action.
func TestRulesComplete(t *testing.T) {
	t.Parallel()
	conditions, actions := map[string]bool{}, map[string]bool{}
	for seed := range uint64(100) {
		plan := sample.Rules(sample.Seeded(seed), "mesh-test")
		if err := plan.Validate(); err != nil {
			t.Fatal(err)
		}
		for _, rule := range plan.Rules() {
			actions[fmt.Sprintf("%T", rule.Action)] = true
			noteCondition(conditions, "source port", rule.Match.L4.SrcPort())
			noteCondition(conditions, "destination port", rule.Match.L4.DstPort())
			noteCondition(conditions, "flags", rule.Match.L4.TCPFlags())
			if d := rule.Match.Direction; d != interception.AnyDirection {
				conditions["direction "+d.String()] = true
			}
			for field, value := range reflect.ValueOf(rule.Match).Fields() {
				noteCondition(conditions, field.Name, value.Interface())
			}
		}
	}
	// Family has no negation, Direction has two values instead, and L4 has three conditions.
	if want := 2 * (reflect.TypeFor[interception.Match]().NumField() - 2 + 3); len(conditions) != want {
		t.Errorf("%d kinds of conditions, want %d: %v", len(conditions), want, conditions)
	}
	for _, action := range []interception.Action{
		interception.Accept{},
		interception.Return{},
		interception.Drop{},
		interception.Reject{},
		interception.Jump{},
		interception.Log{},
		interception.RedirectTo{},
		interception.DNATTo{},
		interception.SNATTo{},
		interception.TProxyTo{},
		interception.SetMark{},
		interception.SaveMark{},
		interception.RestoreMark{},
		interception.SetConnMark{},
		interception.SetZone{},
		interception.NoTrack{},
	} {
		if name := fmt.Sprintf("%T", action); !actions[name] {
			t.Errorf("no %s among %v", name, actions)
		}
	}
}

// noteCondition records a condition that is present.
func noteCondition(seen map[string]bool, name string, value any) {
	if c, ok := value.(interface {
		Present() bool
		Negated() bool
	}); ok && c.Present() {
		seen[fmt.Sprint(name, c.Negated())] = true
	}
}
