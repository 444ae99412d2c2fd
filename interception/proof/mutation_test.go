// SPDX-License-Identifier: Apache-2.0

package proof_test

import (
	"flag"
	"hash/fnv"
	"slices"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/proof"
	"github.com/meshcni/meshcni/interception/trace"
	"github.com/meshcni/meshcni/internal/testing/sample"
)

var mutations = flag.Int("mutations", 1, "how many mutations of each golden plan are compared with it")

// expectConfirmed fails the test unless the answer is Yes or No, and traces agree.
func expectConfirmed(t *testing.T, c sample.Choices, a, b *interception.Plan, how string) proof.Answer {
	t.Helper()
	got, err := proof.Equivalent(a, b, proof.Options{})
	if err != nil {
		t.Fatalf("%s: %v", how, err)
	}
	switch got.Answer {
	case proof.No:
		var outcomes [2]trace.Outcome
		for i, world := range got.Worlds {
			if outcomes[i], err = trace.Trace(world, got.Packet); err != nil {
				t.Fatalf("%s: %v", how, err)
			}
		}
		if proof.Same(outcomes[0], outcomes[1]) {
			t.Errorf("%s: %s ends alike: %s", how, got.Packet, outcomes[0])
		}
	case proof.Yes:
		first, second := proof.World(a, b), proof.World(a, b)
		first.Namespaces[0].Plans = []*interception.Plan{a}
		second.Namespaces[0].Plans = []*interception.Plan{b}
		for range 50 {
			packet := sample.Marking(c, sample.Packet(c))
			one, err := trace.Trace(first, packet)
			if err != nil {
				continue // it cannot start in this world
			}
			if other, err := trace.Trace(second, packet); err != nil || !proof.Same(one, other) {
				t.Errorf("%s: %s ends differently: %s\n%s\n%v", how, packet, one, other, err)
			}
		}
	case proof.Unknown:
		t.Errorf("%s: %s", how, got)
	}
	return got.Answer
}

func TestEquivalentToItself(t *testing.T) {
	t.Parallel()
	for name, plan := range goldenPlans(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := proof.Equivalent(plan, plan, proof.Options{}); err != nil || got.Answer != proof.Yes {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

func TestMutationsOfGoldenPlans(t *testing.T) {
	t.Parallel()
	for name, plan := range goldenPlans(t) {
		if len(slices.Collect(plan.Tables())) == 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seed := fnv.New64()
			_, _ = seed.Write([]byte(name)) // each case with mutations of its own
			choose := sample.Seeded(seed.Sum64())
			answers := map[proof.Answer]int{}
			for tries, done := 0, 0; done < *mutations; tries++ {
				changed, how := sample.Mutation(choose, plan)
				if changed.Validate() != nil || changed.Fingerprint() == plan.Fingerprint() {
					if tries > 1000 {
						t.Fatal("no mutation is valid")
					}
					continue
				}
				answers[expectConfirmed(t, choose, plan, changed, how)]++
				done++
			}
			t.Log(answers)
		})
	}
}
