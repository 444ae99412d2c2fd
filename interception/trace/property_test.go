// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
	"github.com/meshcni/meshcni/internal/testing/sample"
)

// checkOutcome fails the test unless a walk of the packet can have the outcome.
func checkOutcome(t *testing.T, packet trace.Packet, outcome trace.Outcome) {
	t.Helper()
	checkPath(t, packet, outcome)
	delivered, taken := outcome.Verdict == trace.Delivered, outcome.Listener.Port != 0
	for problem, found := range map[string]bool{
		"a listener goes with Delivered only":   !delivered && taken,
		"a socket goes with Delivered only":     !delivered && outcome.Socket != nil,
		"the original goes with listeners only": taken != outcome.OriginalDst.IsValid(),
		"the listener has another port": taken && uint16(outcome.Listener.Port) != outcome.Header.Dst.Port() &&
			!performed[interception.TProxyTo](outcome),
		"it was sent by another link":             outcome.Verdict == trace.Sent && outcome.Link != "eth0",
		"no rule dropped it":                      outcome.Verdict == trace.Dropped && !lastIs(outcome, interception.Drop{}) && !lastFails(outcome),
		"a rule dropped it":                       outcome.Verdict != trace.Dropped && lastIs(outcome, interception.Drop{}),
		"the last rule rejects with Rejected":     (outcome.Verdict == trace.Rejected) != lastIs(outcome, interception.Reject{}),
		"a cause goes with Unroutable only":       (outcome.Verdict == trace.Unroutable) != (outcome.Cause != 0),
		"nothing was unknown":                     outcome.Verdict == trace.Unknown,
		"a flow was left that was never complete": outcome.Flow != nil && !outcome.Flow.SrcSettled && !outcome.Flow.Untracked && packet.Flow == nil,
	} {
		if found {
			t.Errorf("%s\n%s", problem, outcome.Report())
		}
	}
}

// performed reports whether there is a step with such an action.
func performed[A interception.Action](outcome trace.Outcome) bool {
	return slices.ContainsFunc(outcome.Path, func(step trace.Step) bool {
		_, ok := step.Rule.Action.(A)
		return ok
	})
}

// lastIs reports whether the path ends in the action.
func lastIs(outcome trace.Outcome, action interception.Action) bool {
	return len(outcome.Path) > 0 && outcome.Path[len(outcome.Path)-1].Rule.Action == action
}

// lastFails reports whether the path ends in an action that drops packets without a target.
func lastFails(outcome trace.Outcome) bool {
	if len(outcome.Path) == 0 {
		return false
	}
	switch last := outcome.Path[len(outcome.Path)-1]; last.Rule.Action.(type) {
	case interception.TProxyTo, interception.RedirectTo:
		return !last.Changed()
	default:
		return false
	}
}

// checkPath fails the test unless each step begins with the result of the previous one, and changes
// no more than its action can.
func checkPath(t *testing.T, packet trace.Packet, outcome trace.Outcome) {
	t.Helper()
	header := trace.Header{Src: outcome.Packet.Src, Dst: packet.Dst}
	if socket, ok := packet.From.(trace.Socket); ok {
		header.Mark = socket.Mark
	}
	for i, step := range outcome.Path {
		if step.Before != header {
			t.Errorf("step %d (%s) begins with %s, and %s went before", i, step.Rule.ID, step.Before, header)
		}
		if left := changeable(step); left != step.Before {
			t.Errorf("step %d (%s) changed the packet: %s", i, step.Rule.ID, step.After)
		}
		header = step.After
	}
	if header != outcome.Header {
		t.Errorf("the path ends with %s, the outcome says %s", header, outcome.Header)
	}
}

// changeable returns the result of the step without the changes that its action may make.
func changeable(step trace.Step) trace.Header {
	left := step.After
	switch step.Rule.Action.(type) {
	case interception.RedirectTo, interception.DNATTo:
		left.Dst = step.Before.Dst
	case interception.SNATTo:
		left.Src = step.Before.Src
	case interception.SetMark, interception.RestoreMark, interception.TProxyTo:
		left.Mark = step.Before.Mark
	default:
	}
	return left
}

func TestOutcomesOfRandomPlans(t *testing.T) {
	t.Parallel()
	verdicts := map[trace.Verdict]int{}
	for seed := range uint64(2000) {
		choose := sample.Seeded(seed)
		kinds := interception.TableKinds()
		plans := []*interception.Plan{sample.Plan(choose, "test-plan", kinds...), sample.Plan(choose, "other-plan", kinds...)}
		world, packet := sample.World(plans...), sample.Marking(choose, sample.Packet(choose))
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
	for verdict := trace.Delivered; verdict <= trace.Rejected; verdict++ {
		if verdicts[verdict] < 50 {
			t.Errorf("only %d of the random packets are %s: they test too little", verdicts[verdict], verdict)
		}
	}
}

// A plan without rules, or without a rule for a packet, changes nothing.
func TestPlanWithoutEffect(t *testing.T) {
	t.Parallel()
	empty := &interception.Plan{Owner: "empty-plan"}
	for seed := range uint64(500) {
		choose := sample.Seeded(seed)
		plan, packet := sample.Plan(choose, "test-plan", interception.TableKinds()...), sample.Packet(choose)
		expectSame(t, packet, sample.World(), sample.World(empty))
		expectSame(t, packet, sample.World(plan), sample.World(empty, plan, empty))
		expectSame(t, packet, sample.World(), sample.World(withoutVerdicts(plan)))
	}
}

// withoutVerdicts returns the plan without its routes, and with every rule but the jumps turned
// into a return.
func withoutVerdicts(plan *interception.Plan) *interception.Plan {
	changed := &interception.Plan{Owner: plan.Owner}
	for _, object := range plan.Objects {
		switch object.(type) {
		case interception.Route, interception.PolicyRule:
			continue
		}
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

// expectSame fails the test unless the packet ends in the same way in both worlds, by any path.
func expectSame(t *testing.T, packet trace.Packet, a, b trace.World) {
	t.Helper()
	one, other := traced(t, a, packet), traced(t, b, packet)
	one.Path, other.Path = nil, nil
	if diff := cmp.Diff(one.Report(), other.Report()); diff != "" {
		t.Fatalf("%s ends differently:\n%s", packet, diff)
	}
}

// Whatever nat does to a connection, it reverses for the answers: the opener gets them from the
// address that it connected to.
func TestAnswersOfRandomTranslations(t *testing.T) {
	t.Parallel()
	translated := 0
	for seed := range uint64(4000) {
		choose := sample.Seeded(seed)
		world := sample.World(
			symmetric(sample.Plan(choose, "test-plan", interception.NAT)), symmetric(sample.Plan(choose, "other-plan", interception.NAT)))
		packet := sample.Packet(choose)
		packet.Flags = 0
		there := traced(t, world, packet)
		if there.Verdict == trace.Unroutable || there.Verdict == trace.Dropped {
			continue
		}
		var from trace.Origin = ofApplication()
		if there.Verdict == trace.Sent {
			from = trace.Arrival{Link: there.Link}
		}
		back := traced(t, world, there.Answer(from))
		_, opened := packet.From.(trace.Socket)
		switch {
		case back.Cause == trace.Martian: // loopback addresses that were sent out
		case opened && (back.Verdict != trace.Delivered || back.Socket == nil) || !opened && back.Verdict != trace.Sent:
			t.Errorf("seed %d: the answer does not come back\n%s%s", seed, there.Report(), back.Report())
		case back.Header.Src != packet.Dst || back.Header.Dst != there.Packet.Src:
			t.Errorf("seed %d: the answer is another's\n%s%s", seed, there.Report(), back.Report())
		case there.Header.Src != there.Packet.Src || there.Header.Dst != packet.Dst:
			translated++
		}
	}
	if translated < 100 {
		t.Errorf("only %d of the connections were translated: they test too little", translated)
	}
}

// symmetric returns the plan without policy rules by address or link, and without random routes:
// these can send an answer another way than the packet that it answers.
func symmetric(p *interception.Plan) *interception.Plan {
	p.Objects = slices.DeleteFunc(p.Objects, func(o interception.Object) bool {
		switch r := o.(type) {
		case interception.PolicyRule:
			return r.Source.IsValid() || r.Destination.IsValid() || r.In != "" || r.Any
		case interception.Route:
			return strings.HasPrefix(string(r.ID), string(sample.RandomRoute))
		default:
			return false
		}
	})
	return p
}

func FuzzTrace(f *testing.F) {
	f.Add([]byte{})
	for seed := range uint64(20) {
		choose := sample.Seeded(seed)
		data := make([]byte, 400)
		for i := range data {
			data[i] = byte(choose(256))
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		choose := sample.FromBytes(data)
		packet, kinds := sample.Marking(choose, sample.Packet(choose)), interception.TableKinds()
		world := sample.World(sample.Plan(choose, "test-plan", kinds...), sample.Plan(choose, "other-plan", kinds...))
		outcome, err := trace.Trace(world, packet)
		if err != nil {
			t.Fatal(err)
		}
		checkOutcome(t, packet, outcome)
	})
}
