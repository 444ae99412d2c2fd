// SPDX-License-Identifier: Apache-2.0

package iptables_test

import (
	"testing"

	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/proof"
	"github.com/meshcni/meshcni/internal/golden"
)

// TestEquivalentToGoldenPlans proves that what the kernel holds behind Apply does what the plan does.
func TestEquivalentToGoldenPlans(t *testing.T) {
	t.Parallel()
	cases, err := golden.Load("../testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			plan, _, err := c.Plan()
			if err != nil {
				t.Fatal(err)
			}
			flavours(t, func(t *testing.T, flavour iptables.Flavour) {
				t.Helper()
				ns, dp := newPod(t), dataplane(t, iptables.Options{Flavour: flavour, Foreign: true})
				if err := dp.Apply(t.Context(), ns.Netns, plan); err != nil {
					t.Fatal(err)
				}
				state, err := dp.Observe(t.Context(), ns.Netns, plan.Owner)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := proof.Equivalent(plan, state, proof.Options{}); err != nil || got.Answer != proof.Yes {
					t.Errorf("%v, %v", got, err)
				}
			})
		})
	}
}
