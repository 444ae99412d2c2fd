// SPDX-License-Identifier: Apache-2.0

package rendercheck_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/rendercheck"
)

// TestRandomPlansComplete checks that random plans have every condition, as it is and negated, and
// every action.
func TestRandomPlansComplete(t *testing.T) {
	t.Parallel()
	conditions, actions := map[string]bool{}, map[string]bool{}
	for seed := range uint64(100) {
		plan, err := rendercheck.RandomPlan(rand.New(rand.NewPCG(seed, 0)))
		if err != nil {
			t.Fatal(err)
		}
		for _, rule := range plan.Rules() {
			actions[fmt.Sprintf("%T", rule.Action)] = true
			note(conditions, "source port", rule.Match.L4.SrcPort())
			note(conditions, "destination port", rule.Match.L4.DstPort())
			note(conditions, "flags", rule.Match.L4.TCPFlags())
			if d := rule.Match.Direction; d != interception.AnyDirection {
				conditions["direction "+d.String()] = true
			}
			for field, value := range reflect.ValueOf(rule.Match).Fields() {
				note(conditions, field.Name, value.Interface())
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

// note records a condition that is present.
func note(seen map[string]bool, name string, value any) {
	if c, ok := value.(interface {
		Present() bool
		Negated() bool
	}); ok && c.Present() {
		seen[fmt.Sprint(name, c.Negated())] = true
	}
}
