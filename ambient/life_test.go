// SPDX-License-Identifier: Apache-2.0

package ambient

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestNext(t *testing.T) {
	t.Parallel()
	enrolled := Seen{Open: true, Rules: PlannedRules, Proxy: ProxyServes, InSets: true, Status: StatusEnabled}
	with := func(s Seen, change func(*Seen)) Seen {
		change(&s)
		return s
	}
	for name, test := range map[string]struct {
		wanted Wanted
		seen   Seen
		want   []Step
	}{
		"new":                {Wanted{Enrolled: true}, Seen{}, []Step{StepOpen, StepTell, StepAwaitProxy}},
		"served":             {Wanted{Enrolled: true}, Seen{Open: true, Proxy: ProxyServes}, []Step{StepEnter, StepApply, StepEnabled}},
		"enrolled":           {Wanted{Enrolled: true}, enrolled, nil},
		"enrolled, closed":   {Wanted{Enrolled: true, Closed: true}, enrolled, nil},
		"closed":             {Wanted{Enrolled: true, Closed: true}, Seen{}, []Step{StepOpen, StepPending, StepEnter, StepApply, StepTell, StepAwaitProxy}},
		"rules flushed":      {Wanted{Enrolled: true}, with(enrolled, func(s *Seen) { s.Rules = NoRules }), []Step{StepApply}},
		"rules changed":      {Wanted{Enrolled: true}, with(enrolled, func(s *Seen) { s.Rules = OtherRules }), []Step{StepApply}},
		"proxy lost":         {Wanted{Enrolled: true}, with(enrolled, func(s *Seen) { s.Proxy = ProxyUntold }), []Step{StepPending, StepTell, StepAwaitProxy}},
		"listeners missing":  {Wanted{Enrolled: true}, with(enrolled, func(s *Seen) { s.Proxy = ProxyTold }), []Step{StepPending, StepAwaitProxy}},
		"listeners lost":     {Wanted{Enrolled: true}, with(enrolled, func(s *Seen) { s.Proxy = ProxyLost }), []Step{StepPending, StepWithdraw, StepTell, StepAwaitProxy}},
		"address taken":      {Wanted{Enrolled: true}, with(enrolled, func(s *Seen) { s.InSets = false }), []Step{StepEnter}},
		"wanted again":       {Wanted{Enrolled: true}, with(enrolled, func(s *Seen) { s.Rules = DrainingRules }), []Step{StepApply}},
		"not wanted":         {Wanted{}, enrolled, []Step{StepDrain, StepAwaitDrained}},
		"cannot be drained":  {Wanted{}, with(enrolled, func(s *Seen) { s.Undrainable = true }), []Step{StepRemove, StepWithdraw, StepLeave, StepClear, StepClose}},
		"drained":            {Wanted{}, with(enrolled, func(s *Seen) { s.Rules, s.Drained = DrainingRules, true }), []Step{StepWithdraw, StepRemove, StepLeave, StepClear, StepClose}},
		"tunnels may come":   {Wanted{Held: StepAwaitDrained}, with(enrolled, func(s *Seen) { s.Rules, s.Drained = DrainingRules, true }), []Step{StepAwaitDrained}},
		"nobody serves it":   {Wanted{}, with(enrolled, func(s *Seen) { s.Proxy = ProxyUntold }), []Step{StepRemove, StepLeave, StepClear, StepClose}},
		"journal says rules": {Wanted{}, Seen{Rules: OtherRules}, []Step{StepOpen, StepRemove, StepClose}},
		"gone":               {Wanted{Gone: true, Enrolled: true}, enrolled, []Step{StepWithdraw, StepLeave, StepClose}},
		"kept":               {Wanted{Enrolled: true, Kept: true}, with(enrolled, func(s *Seen) { s.Status = NoStatus }), nil},
		"kept, restarted":    {Wanted{Enrolled: true, Kept: true}, Seen{Rules: OtherRules, InSets: true}, []Step{StepOpen, StepTell, StepAwaitProxy}},
		"kept, flushed":      {Wanted{Enrolled: true, Kept: true}, Seen{Open: true, Proxy: ProxyServes}, []Step{StepEnter, StepApply}},
		"kept, closed":       {Wanted{Enrolled: true, Kept: true, Closed: true}, Seen{Open: true}, []Step{StepEnter, StepApply, StepTell, StepAwaitProxy}},
		"held":               {Wanted{Enrolled: true, Held: StepAwaitTurn}, Seen{}, []Step{StepOpen, StepTell, StepAwaitProxy}},
		"held, served":       {Wanted{Enrolled: true, Held: StepAwaitTurn}, Seen{Open: true, Proxy: ProxyServes, Status: StatusEnabled}, []Step{StepAwaitTurn}},
		"held, closed":       {Wanted{Enrolled: true, Held: StepAwaitTurn, Closed: true}, Seen{Open: true}, []Step{StepTell, StepAwaitProxy}},
		"held, half":         {Wanted{Enrolled: true, Held: StepAwaitTurn}, Seen{Open: true, Proxy: ProxyServes, InSets: true}, []Step{StepAwaitTurn}},
		"held, captured":     {Wanted{Enrolled: true, Held: StepAwaitTurn}, with(enrolled, func(s *Seen) { s.Status = NoStatus }), []Step{StepEnabled}},
		"turn":               {Wanted{Enrolled: true, Held: StepPrepare}, Seen{Open: true, Proxy: ProxyServes}, []Step{StepPrepare, StepAwaitTurn}},
		"turn, prepared":     {Wanted{Enrolled: true, Held: StepPrepare}, Seen{Open: true, Proxy: ProxyServes, Rules: DrainingRules}, []Step{StepAwaitTurn}},
		"prepared":           {Wanted{Enrolled: true}, Seen{Open: true, Proxy: ProxyServes, Rules: DrainingRules}, []Step{StepEnter, StepApply, StepEnabled}},
		"never met":          {Wanted{}, Seen{}, nil},
	} {
		if got := Next(test.wanted, test.seen); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// everySeen returns all that an agent can have seen.
func everySeen() (all []Seen) {
	booleans := []bool{false, true}
	for _, open := range booleans {
		for rules := NoRules; rules <= DrainingRules; rules++ {
			for proxy := ProxyUntold; proxy <= ProxyLost; proxy++ {
				for _, drained := range booleans {
					for _, inSets := range booleans {
						for _, status := range []Status{NoStatus, StatusPending, StatusEnabled} {
							one := Seen{Open: open, Rules: rules, Proxy: proxy, Drained: drained, InSets: inSets, Status: status}
							all = append(all, one)
							one.Undrainable = true
							all = append(all, one)
						}
					}
				}
			}
		}
	}
	return all
}

var everyWanted = []Wanted{
	{},
	{Gone: true},
	{Enrolled: true},
	{Enrolled: true, Closed: true},
	{Enrolled: true, Kept: true},
	{Enrolled: true, Kept: true, Closed: true},
	{Held: StepAwaitDrained},
	{Enrolled: true, Held: StepAwaitTurn},
	{Enrolled: true, Held: StepPrepare},
	{Enrolled: true, Closed: true, Held: StepAwaitTurn},
	{Enrolled: true, Closed: true, Held: StepPrepare},
}

// left returns the steps that can be taken: a pod that is held waits at last, for something else
// than steps.
func left(w Wanted, s Seen) []Step {
	steps := Next(w, s)
	if n := len(steps); n > 0 && (steps[n-1] == StepAwaitTurn || steps[n-1] == StepAwaitDrained && s.Drained) {
		return steps[:n-1]
	}
	return steps
}

// waits reports whether nothing is left to do but to wait for what holds a pod.
func waits(w Wanted, s Seen) bool {
	switch {
	case w.Held == "":
		return false
	case w.Enrolled:
		return s.Open && s.Proxy == ProxyServes && (w.Held == StepAwaitTurn || s.Rules == DrainingRules || s.Rules == PlannedRules)
	}
	return s.Open && s.Proxy != ProxyUntold && s.Rules == DrainingRules && s.Drained
}

// reached reports whether nothing is left to do.
func reached(w Wanted, s Seen) bool {
	switch {
	case waits(w, s):
		return true
	case w.Gone:
		return !s.Open && s.Proxy == ProxyUntold && !s.InSets
	case w.Enrolled:
		return s.Open && s.Rules == PlannedRules && s.Proxy == ProxyServes && s.InSets && (s.Status == StatusEnabled || w.Kept)
	default:
		return !s.Open && s.Rules == NoRules && s.Proxy == ProxyUntold && !s.InSets && s.Status == NoStatus
	}
}

// TestNextConverges takes the steps from each state, and judges each of them.
func TestNextConverges(t *testing.T) {
	t.Parallel()
	for _, wanted := range everyWanted {
		for _, from := range everySeen() {
			seen := from
			var taken []Step
			for steps := left(wanted, seen); len(steps) > 0; steps = left(wanted, seen) {
				for _, step := range steps {
					if slices.Contains(taken, step) {
						t.Fatalf("%+v from %+v: %s is repeated after %v", wanted, from, step, taken)
					}
					if fault := judge(wanted, seen, step); fault != "" {
						t.Fatalf("%+v from %+v: after %v, %s %s", wanted, from, taken, step, fault)
					}
					taken = append(taken, step)
					seen = seen.After(step)
				}
			}
			if !reached(wanted, seen) {
				t.Fatalf("%+v from %+v ends at %+v after %v", wanted, from, seen, taken)
			}
		}
	}
}

// judge returns what is wrong with a step at that moment, or "".
func judge(wanted Wanted, seen Seen, step Step) string {
	serves := seen.Proxy == ProxyServes
	switch {
	case seen.After(step) == seen:
		return "changes nothing"
	case wanted.Kept && seen.After(step).Status != seen.Status:
		return "writes a status that is not known"
	case step == StepPrepare, step == StepEnter, step == StepApply:
		return judgeCapture(wanted, seen, step)
	case step == StepEnabled && (!serves || seen.Rules != PlannedRules):
		return "claims too much"
	case step == StepWithdraw && !wanted.Gone && seen.Proxy != ProxyLost && (seen.Rules == PlannedRules || seen.Rules == OtherRules):
		return "cuts off a pod that is still captured"
	case step == StepClose && seen.Rules != NoRules && !wanted.Gone:
		return "loses the way to the rules"
	case !seen.Open && slices.Contains([]Step{StepTell, StepPrepare, StepDrain, StepRemove}, step):
		return "needs the namespace"
	}
	return ""
}

func judgeCapture(wanted Wanted, seen Seen, step Step) string {
	serves := seen.Proxy == ProxyServes
	switch {
	case step != StepPrepare && wanted.Held != "":
		return "captures a pod that is held"
	case step == StepPrepare && (wanted.Held != StepPrepare || !wanted.Enrolled || !serves || seen.Rules == PlannedRules):
		return "prepares a pod without need"
	case step != StepApply:
		return ""
	case !seen.Open:
		return "needs the namespace"
	case !seen.InSets:
		return "captures the probes"
	case !serves && seen.Status != StatusPending && !wanted.Kept:
		return "captures a pod that no proxy serves, and does not say so"
	case !serves && !wanted.Closed:
		return "captures a pod that no proxy serves, although that was not asked for"
	}
	return ""
}

// TestNextOverHistories lets steps fail and the world change between them, and then leaves the pod
// alone.
func TestNextOverHistories(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 18))
		wanted, seen, history := everyWanted[r.IntN(len(everyWanted))], Seen{}, ""
		for range 60 {
			for _, step := range left(wanted, seen) {
				if fault := judge(wanted, seen, step); fault != "" {
					t.Fatalf("seed %d:%s: %s %s", seed, history, step, fault)
				}
				if r.IntN(4) == 0 {
					history += fmt.Sprintf(" %s!", step)
					break // the step failed: ask again
				}
				history += " " + string(step)
				seen = seen.After(step)
				if r.IntN(5) == 0 {
					history += " *"
					seen = disturb(r, seen)
					break
				}
			}
			if r.IntN(8) == 0 {
				wanted = everyWanted[r.IntN(len(everyWanted))]
				history += fmt.Sprintf(" %+v", wanted)
			}
		}
		for steps := left(wanted, seen); len(steps) > 0; steps = left(wanted, seen) {
			for _, step := range steps {
				seen = seen.After(step)
			}
		}
		if !reached(wanted, seen) {
			t.Fatalf("seed %d:%s: ends at %+v, wanted %+v", seed, history, seen, wanted)
		}
	}
}

// disturb lets another program, the proxy or a restart of the agent change what is there.
func disturb(r *rand.Rand, s Seen) Seen {
	switch r.IntN(5) {
	case 0:
		s.Rules = []Rules{NoRules, OtherRules}[r.IntN(2)]
	case 1:
		if s.Proxy != ProxyUntold {
			s.Proxy = []Proxy{ProxyUntold, ProxyTold, ProxyLost}[r.IntN(3)]
		}
	case 2:
		s.InSets = false
	case 3: // the agent restarts: its journal knows the rest
		s.Open, s.Proxy = false, ProxyUntold
	case 4: // the namespace was replaced
		s.Open, s.Rules, s.Proxy = false, NoRules, ProxyUntold
	}
	return s
}

func TestTexts(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		fmt.Sprint(NoRules, OtherRules, PlannedRules, DrainingRules, Rules(9)): "none other planned draining 9",
		fmt.Sprint(ProxyUntold, ProxyTold, ProxyServes, ProxyLost, Proxy(9)):   "untold told serves lost 9",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
