// SPDX-License-Identifier: Apache-2.0

package interception_test

import (
	"testing"

	"github.com/meshcni/meshcni/interception"
)

// TestSparingForeignPlan has a plan that already uses the usual id of the added rule.
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
