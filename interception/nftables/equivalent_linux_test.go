// SPDX-License-Identifier: Apache-2.0

package nftables_test

import (
	"flag"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/interception/proof"
	"github.com/meshcni/meshcni/internal/testing/golden"
	"github.com/meshcni/meshcni/internal/testing/goldencases"
)

var mutations = flag.Int("mutations", 0, "how many mutations of each golden plan the kernel is asked about; one of some when 0")

// observeAll reads what the owner has in the namespace, and other programs' chains.
func (p *pod) observeAll(t testing.TB, owner interception.Owner) interception.State {
	t.Helper()
	d, err := nftables.New(nftables.Options{Foreign: true})
	if err != nil {
		t.Fatal(err)
	}
	state, err := d.Observe(t.Context(), p.Netns, owner)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// TestEquivalentToGoldenPlans proves that the kernel's state after Apply does what the plan does.
func TestEquivalentToGoldenPlans(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"../sidecar/testdata", "../sidecar/testdata/" + golden.LargeIDs} {
		cases, err := golden.Load(dir)
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
				ns := newPod(t)
				ns.apply(t, plan)
				if got, err := proof.Equivalent(plan, ns.observeAll(t, plan.Owner), proof.Options{}); err != nil || got.Answer != proof.Yes {
					t.Errorf("%v, %v", got, err)
				}
			})
		}
	}
}

// TestMutationsOfGoldenPlans proves that changed plans differ from the kernel's state, and has the
// kernel confirm the packets that show it.
func TestMutationsOfGoldenPlans(t *testing.T) {
	t.Parallel()
	if *mutations > 0 {
		goldencases.Refute(t, dataplane(t), "../sidecar/testdata", 1, *mutations)
		return
	}
	goldencases.Refute(t, dataplane(t), "../sidecar/testdata", 8, 1)
}
