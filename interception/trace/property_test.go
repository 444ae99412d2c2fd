// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// checkOutcome fails the test unless the outcome is one that a walk of the packet can have.
func checkOutcome(t *testing.T, packet trace.Packet, outcome trace.Outcome) {
	t.Helper()
	checkPath(t, packet, outcome)
	delivered, dropped := outcome.Verdict == trace.Delivered, outcome.Verdict == trace.Dropped
	for problem, found := range map[string]bool{
		"the source changed":                    outcome.Header.Src != outcome.Packet.Src,
		"a listener goes with Delivered only":   delivered != (outcome.Listener.Port != 0),
		"the original goes with Delivered only": delivered != outcome.OriginalDst.IsValid(),
		"the listener has another port":         delivered && uint16(outcome.Listener.Port) != outcome.Header.Dst.Port(),
		"it was sent by another link":           outcome.Verdict == trace.Sent && outcome.Link != "eth0",
		"it was sent elsewhere":                 outcome.Verdict == trace.Sent && outcome.Header.Dst != packet.Dst,
		"the last rule drops with Dropped only": dropped != lastDrops(outcome),
		"a cause goes with Unroutable only":     (outcome.Verdict == trace.Unroutable) != (outcome.Cause != 0),
	} {
		if found {
			t.Errorf("%s\n%s", problem, outcome.Report())
		}
	}
}

// lastDrops reports whether the last rule of the path drops: by its action, or because there is no address to redirect to.
func lastDrops(outcome trace.Outcome) bool {
	if len(outcome.Path) == 0 {
		return false
	}
	last := outcome.Path[len(outcome.Path)-1]
	_, redirects := last.Rule.Action.(interception.RedirectTo)
	return last.Rule.Action == interception.Drop{} || redirects && last.After.Dst.Addr() == netip.MustParseAddr("::6")
}

// checkPath fails the test unless each step begins with what the one before left, and only redirects change it.
func checkPath(t *testing.T, packet trace.Packet, outcome trace.Outcome) {
	t.Helper()
	header := trace.Header{Src: outcome.Packet.Src, Dst: packet.Dst}
	for i, step := range outcome.Path {
		if step.Before != header {
			t.Errorf("step %d (%s) begins with %s, and %s went before", i, step.Rule.ID, step.Before, header)
		}
		_, redirects := step.Rule.Action.(interception.RedirectTo)
		if step.Changed() && !redirects {
			t.Errorf("step %d (%s) changed the packet", i, step.Rule.ID)
		}
		header = step.After
	}
	if header != outcome.Header {
		t.Errorf("the path ends with %s, the outcome says %s", header, outcome.Header)
	}
}

func TestOutcomesOfRandomPlans(t *testing.T) {
	t.Parallel()
	verdicts := map[trace.Verdict]int{}
	for seed := range uint64(2000) {
		choose := seeded(seed)
		plans := []*interception.Plan{randomPlan(choose, "test-plan"), randomPlan(choose, "other-plan")}
		world, packet := randomWorld(plans...), randomPacket(choose)
		outcome, err := trace.Trace(world, packet)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s%s", seed, err, plans[0], plans[1])
		}
		checkOutcome(t, packet, outcome)
		verdicts[outcome.Verdict]++
		again := traced(t, world, packet)
		if outcome.Report() != again.Report() {
			t.Errorf("seed %d: the same packet ends differently\n%s%s", seed, outcome.Report(), again.Report())
		}
	}
	for verdict := trace.Delivered; verdict <= trace.Unroutable; verdict++ {
		if verdicts[verdict] < 50 {
			t.Errorf("only %d of the random packets are %s: they test too little", verdicts[verdict], verdict)
		}
	}
}

// A plan that says nothing, or nothing about a packet, changes nothing: as if it were not there.
func TestPlanWithoutEffect(t *testing.T) {
	t.Parallel()
	empty := &interception.Plan{Owner: "empty-plan"}
	for seed := range uint64(500) {
		choose := seeded(seed)
		plan, packet := randomPlan(choose, "test-plan"), randomPacket(choose)
		expectSame(t, packet, randomWorld(), randomWorld(empty))
		expectSame(t, packet, randomWorld(plan), randomWorld(empty, plan, empty))
		expectSame(t, packet, randomWorld(), randomWorld(withoutVerdicts(plan)))
	}
}

// withoutVerdicts is the plan with every rule but the jumps turned into a return.
func withoutVerdicts(plan *interception.Plan) *interception.Plan {
	changed := &interception.Plan{Owner: plan.Owner}
	for _, object := range plan.Objects {
		if table, ok := object.(interception.Table); ok {
			table.Chains = slices.Clone(table.Chains)
			for i, chain := range table.Chains {
				table.Chains[i].Rules = slices.Clone(chain.Rules)
				for j, rule := range chain.Rules {
					if _, jumps := rule.Action.(interception.Jump); !jumps {
						table.Chains[i].Rules[j].Action = interception.Return{}
					}
				}
			}
			object = table
		}
		changed.Objects = append(changed.Objects, object)
	}
	return changed
}

// expectSame fails the test unless the packet ends in the same way in both worlds, by whatever path.
func expectSame(t *testing.T, packet trace.Packet, a, b trace.World) {
	t.Helper()
	one, other := traced(t, a, packet), traced(t, b, packet)
	one.Path, other.Path = nil, nil
	if diff := cmp.Diff(one.Report(), other.Report()); diff != "" {
		t.Fatalf("%s ends differently:\n%s", packet, diff)
	}
}

func FuzzTrace(f *testing.F) {
	f.Add([]byte{})
	for seed := range uint64(20) {
		choose := seeded(seed)
		data := make([]byte, 400)
		for i := range data {
			data[i] = byte(choose(256))
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		choose := fromBytes(data)
		packet := randomPacket(choose)
		outcome, err := trace.Trace(randomWorld(randomPlan(choose, "test-plan"), randomPlan(choose, "other-plan")), packet)
		if err != nil {
			t.Fatal(err)
		}
		checkOutcome(t, packet, outcome)
	})
}
