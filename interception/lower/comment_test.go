// SPDX-License-Identifier: Apache-2.0

package lower_test

import (
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
)

func TestParseComment(t *testing.T) {
	t.Parallel()
	rule := interception.Rule{ID: "nat.output.all", Action: interception.Return{}, Why: "connections from the pod"}
	id, hash, why, ok := lower.ParseComment(rule.Comment())
	if !ok || id != rule.ID || why != rule.Why || rule.Comment() != string(id)+" "+hash+" "+why {
		t.Errorf("%q: %q, %q, %q, %t", rule.Comment(), id, hash, why, ok)
	}
	for _, text := range []string{
		"", "nat.output.all", "nat.output.all 0123abcd", "nat.output.all 0123abcd ", "Not.An.ID 0123abcd a reason", "nat.output.all 0123ab a reason",
		"nat.output.all 0123abcx a reason", "nat.output.all 0123abcd a \"reason\"", "nat.output.all 0123abcd a\nreason",
	} {
		if id, hash, why, ok := lower.ParseComment(text); ok || id != "" || hash != "" || why != "" {
			t.Errorf("%q: %q, %q, %q, %t", text, id, hash, why, ok)
		}
	}
}

// TestReasonsAreThoseOfPlans compares every byte and every length with what a plan accepts.
func TestReasonsAreThoseOfPlans(t *testing.T) {
	t.Parallel()
	for i := range 256 {
		for _, why := range []string{string([]byte{byte(i)}), strings.Repeat("a", i)} {
			plan := &interception.Plan{Owner: "my-mesh", Objects: []interception.Object{
				interception.Sysctl{ID: "some.sysctl", Key: "ipv4/ip_forward", Value: 1, Why: why},
			}}
			_, _, _, ok := lower.ParseComment("some.sysctl 0123abcd " + why)
			if err := plan.Validate(); ok != (err == nil) {
				t.Errorf("%q: a reason: %t, but a plan that has it: %v", why, ok, err)
			}
		}
	}
}
