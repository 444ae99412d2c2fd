// SPDX-License-Identifier: Apache-2.0

package proof_test

import (
	"flag"
	"fmt"
	"hash/fnv"
	"slices"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/proof"
	"github.com/meshcni/meshcni/interception/trace"
	"github.com/meshcni/meshcni/internal/random"
	"github.com/meshcni/meshcni/internal/sample"
)

var mutations = flag.Int("mutations", 1, "how many mutations of each golden plan are compared with it")

// mutated is the plan with one of its rules changed; it says how. It may not be valid.
func mutated(c sample.Choices, plan *interception.Plan) (*interception.Plan, string) {
	changed := &interception.Plan{Owner: plan.Owner, Objects: slices.Clone(plan.Objects)}
	var tables []int
	for i, object := range changed.Objects {
		if _, ok := object.(interception.Table); ok {
			tables = append(tables, i)
		}
	}
	at := sample.Pick(c, tables...)
	table, _ := changed.Objects[at].(interception.Table)
	table.Chains = slices.Clone(table.Chains)
	chain := &table.Chains[c(len(table.Chains))]
	chain.Rules = slices.Clone(chain.Rules)
	changed.Objects[at] = table
	if len(chain.Rules) == 0 {
		return changed, "nothing"
	}
	i := c(len(chain.Rules))
	rule := &chain.Rules[i]
	switch c(6) {
	case 0:
		how := fmt.Sprintf("without %s", rule.ID)
		chain.Rules = slices.Delete(chain.Rules, i, i+1)
		return changed, how
	case 1:
		j := (i + 1) % len(chain.Rules)
		how := fmt.Sprintf("%s and %s change places", rule.ID, chain.Rules[j].ID)
		chain.Rules[i], chain.Rules[j] = chain.Rules[j], chain.Rules[i]
		return changed, how
	case 2:
		rule.Action = otherAction(rule.Action)
	default:
		rule.Match = otherMatch(c, rule.Match)
	}
	return changed, fmt.Sprintf("%s is %s -> %v", rule.ID, rule.Match, rule.Action)
}

func otherAction(a interception.Action) interception.Action {
	switch a := a.(type) {
	case interception.Return:
		return interception.Accept{}
	case interception.Accept:
		return interception.Return{}
	case interception.RedirectTo:
		return interception.RedirectTo{Port: a.Port + 1}
	case interception.TProxyTo:
		return interception.TProxyTo{Port: a.Port, Mark: interception.WholeMark(a.Mark.Value + 1)}
	case interception.SetMark:
		return interception.SetMark{Mark: interception.WholeMark(a.Mark.Value + 1)}
	case interception.SetZone:
		return interception.SetZone{Zone: a.Zone + 1}
	default:
		return interception.Return{}
	}
}

// otherMatch narrows, widens or negates one of the conditions.
func otherMatch(c sample.Choices, m interception.Match) interception.Match {
	switch c(6) {
	case 0:
		m.L4 = sample.Pick(c, interception.TCP().To(interception.Ports(8080)), interception.TCP(), interception.UDP())
	case 1:
		m.Out, m.In = negated(m.Out), negated(m.In)
	case 2:
		m.UID, m.GID = negated(m.UID), negated(m.GID)
	case 3:
		m.Dst, m.Src, m.DstSet = negated(m.Dst), negated(m.Src), negated(m.DstSet)
	case 4:
		m.Mark, m.ConnMark, m.State = negated(m.Mark), negated(m.ConnMark), negated(m.State)
	case 5:
		m.UID, m.GID = interception.Condition[interception.UIDSet]{}, interception.Condition[interception.GIDSet]{}
	}
	return m
}

func negated[S interception.Operand](c interception.Condition[S]) interception.Condition[S] {
	if !c.Present() {
		return c
	}
	if c.Negated() {
		return interception.Is(c.Set())
	}
	return interception.Not(c.Set())
}

// expectConfirmed fails the test unless the answer is yes or no, and what traces find agrees.
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
			packet := random.Marking(c, random.Packet(c))
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
				changed, how := mutated(choose, plan)
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
