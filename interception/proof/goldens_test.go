// SPDX-License-Identifier: Apache-2.0

package proof_test

import (
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/golden"
)

// goldenPlans returns the plans of the golden cases.
func goldenPlans(t testing.TB) map[string]*interception.Plan {
	t.Helper()
	cases, err := golden.Load("../sidecar/testdata")
	if err != nil {
		t.Fatal(err)
	}
	plans := map[string]*interception.Plan{}
	for _, c := range cases {
		plan, _, err := c.Plan()
		if err != nil {
			t.Fatal(c.Name, err)
		}
		plans[c.Name] = plan
	}
	return plans
}
