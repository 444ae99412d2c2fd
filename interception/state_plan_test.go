// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

// A rule gets an invented name when its comment has none, or one that is taken.
func TestStatePlan(t *testing.T) {
	t.Parallel()
	plan := diffPlan(t)
	state := editOutput(observed(plan), func(rules []Rule) []Rule {
		rules[0].ID, rules[0].Why = "", ""
		rules[1].ID = rules[2].ID
		rules[3].ID = "Not An ID"
		return rules
	})
	state.Objects[0] = Address{Device: "lo", Prefix: netip.MustParsePrefix("::6/128")}
	got := state.Plan()
	if err := got.Validate(); err != nil {
		t.Error(err)
	}
	if drifts := Diff(got, state); len(drifts) > 0 {
		t.Errorf("it is another: %v", drifts)
	}
	if again := state.Plan(); again.String() != got.String() {
		t.Errorf("another time it is\n%s\nand not\n%s", again, got)
	}
	if strings.Contains(plan.String(), foundWhy) {
		t.Error("the plan was changed, which shares its chains with the state")
	}
}

func TestStatePlanWithAnOpaqueRule(t *testing.T) {
	t.Parallel()
	state := editOutput(observed(diffPlan(t)), func(rules []Rule) []Rule {
		rules[1].Action = Opaque{Text: "quota 5 bytes"}
		return rules
	})
	if err := state.Plan().Validate(); !errors.Is(err, ErrPlan) || !strings.Contains(err.Error(), "quota 5 bytes") {
		t.Errorf("%v", err)
	}
}

// A chain gets a new name when a plan cannot have its own; jumps still lead to it.
func TestStatePlanWithAStrangeChain(t *testing.T) {
	t.Parallel()
	state := State{Owner: "my-mesh", Objects: []Object{Table{Kind: Filter, Entries: []Entry{{Hook: Input, Chain: "observed-1"}}, Chains: []Chain{
		{Name: "observed-1", Rules: []Rule{{Action: Jump{"0-guard"}}}}, {Name: "0-guard", Rules: []Rule{{Action: Drop{}}}},
	}}}}
	plan := state.Plan()
	if err := plan.Validate(); err != nil {
		t.Fatal(err)
	}
	for table := range plan.Tables() {
		jump, _ := table.Chains[0].Rules[0].Action.(Jump)
		if table.Entries[0].Chain != "observed-1" || table.Chains[0].Name != "observed-1" || jump.Chain != table.Chains[1].Name {
			t.Errorf("got\n%s", plan)
		}
	}
}
