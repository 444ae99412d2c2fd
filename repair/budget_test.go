// SPDX-License-Identifier: Apache-2.0

package repair_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/meshcni/meshcni/repair"
)

func action(mode repair.Mode, name, owner string) repair.Action {
	return repair.Action{Do: mode, Target: repair.Target{Namespace: "shop", Name: name, UID: "uid-" + name}, Owner: owner}
}

// free is no limit.
func free() repair.Limit { return repair.Limit{Burst: 1} }

func TestBudget(t *testing.T) {
	t.Parallel()
	second := func(n int) time.Time { return added.Add(time.Duration(n) * time.Second) }
	limits := repair.Limits{
		Writes: repair.Limit{Burst: 4, Every: 10 * time.Second}, Disruptions: repair.Limit{Burst: 2, Every: 30 * time.Second},
		PerOwner: repair.Limit{Burst: 1, Every: time.Minute}, PerPod: repair.Limit{Burst: 1, Every: 5 * time.Second},
	}
	budget := repair.NewBudget(limits)
	for i, step := range []struct {
		at   int
		do   repair.Action
		want string
	}{
		{0, action(repair.ModeDelete, "a-1", "ReplicaSet shop/a"), ""},
		{0, action(repair.ModeDelete, "a-2", "ReplicaSet shop/a"), `over the limit "per owner": again in 1m0s`},
		{0, action(repair.ModeRepair, "a-2", "ReplicaSet shop/a"), ""},
		{1, action(repair.ModeLabel, "a-2", "ReplicaSet shop/a"), `over the limit "per pod": again in 4s`},
		{1, action(repair.ModeReport, "a-2", "ReplicaSet shop/a"), ""},
		{1, action(repair.ModeNothing, "a-2", "ReplicaSet shop/a"), ""},
		{1, action(repair.ModeEvict, "b-1", ""), ""},
		{1, action(repair.ModeEvict, "c-1", ""), `over the limit "disruptions": again in 29s`},
		{1, action(repair.ModeLabel, "c-1", ""), ""},
		{1, action(repair.ModeLabel, "d-1", ""), `over the limit "writes": again in 9s`},
		{10, action(repair.ModeLabel, "d-1", ""), ""},
		{10, action(repair.ModeLabel, "e-1", ""), `over the limit "writes": again in 10s`},
		{30, action(repair.ModeEvict, "c-1", ""), ""},
		{30, action(repair.ModeEvict, "b-1", ""), `over the limit "per owner": again in 31s`},
		{60, action(repair.ModeDelete, "a-3", "ReplicaSet shop/a"), ""},
	} {
		next, err := budget.Take(step.do, second(step.at))
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != step.want {
			t.Errorf("step %d: want %q, got %q", i, step.want, got)
		}
		budget = next
	}
}

func TestBudgetThatAllowsNothing(t *testing.T) {
	t.Parallel()
	const never = `over the limit "writes", which allows nothing: raise it, or report only`
	wrong := repair.Limit{Burst: 1, Every: -1}
	for name, budget := range map[string]repair.Budget{
		"zero":            {},
		"zero limits":     repair.NewBudget(repair.Limits{}),
		"a wrong limit":   repair.NewBudget(repair.Limits{Writes: wrong, PerPod: free()}),
		"no writes alone": repair.NewBudget(repair.Limits{PerPod: repair.Limit{Burst: 1, Every: time.Hour}}),
	} {
		next, err := budget.Take(action(repair.ModeLabel, "a", ""), added)
		var over *repair.LimitError
		if !errors.As(err, &over) || !over.Never || err.Error() != never {
			t.Errorf("%s: got %v", name, err)
		}
		if !reflect.DeepEqual(next, budget) {
			t.Errorf("%s: something was taken", name)
		}
		if _, err := budget.Take(action(repair.ModeReport, "a", ""), added); err != nil {
			t.Errorf("%s: a report: %v", name, err)
		}
	}
	// A limit that allows nothing is reported, rather than one that allows more later.
	budget := repair.NewBudget(repair.Limits{Writes: repair.Limit{Burst: 1, Every: time.Minute}, PerPod: free(), PerOwner: free()})
	budget, err := budget.Take(action(repair.ModeLabel, "a", ""), added)
	if err != nil {
		t.Fatal(err)
	}
	_, err = budget.Take(action(repair.ModeDelete, "a", ""), added)
	var over *repair.LimitError
	if !errors.As(err, &over) || !over.Never || over.Limit != "disruptions" {
		t.Errorf("got %v", err)
	}
}

func TestLimitsValidate(t *testing.T) {
	t.Parallel()
	for _, limits := range []repair.Limits{{}, repair.DefaultLimits(), {Writes: repair.Limit{Burst: 10_000, Every: 7 * 24 * time.Hour}}} {
		if err := limits.Validate(); err != nil {
			t.Error(err)
		}
	}
	err := repair.Limits{
		Writes: repair.Limit{Burst: -1}, Disruptions: repair.Limit{Burst: 10_001},
		PerOwner: repair.Limit{Every: -time.Second}, PerPod: repair.Limit{Every: 169 * time.Hour},
	}.Validate()
	want := `limit writes: invalid repair policy: a burst of -1: name one of 0 to 10000
limit disruptions: invalid repair policy: a burst of 10001: name one of 0 to 10000
limit per owner: invalid repair policy: once every -1s: name a time of 0 to 168h0m0s
limit per pod: invalid repair policy: once every 169h0m0s: name a time of 0 to 168h0m0s`
	if !errors.Is(err, repair.ErrPolicy) || err.Error() != want {
		t.Errorf("got\n%v", err)
	}
}

// life is a random sequence of actions at random times, and those of them that a budget allowed.
type life struct {
	random  *rand.Rand
	limits  repair.Limits
	budget  repair.Budget
	now     time.Time
	forward time.Duration            // how far the clock has gone forward in total
	taken   map[string]int           // by limit and key
	since   map[string]time.Duration // forward at the first action, by limit and key
}

func newLife(seed uint64) *life {
	l := &life{random: rand.New(rand.NewPCG(seed, 1)), now: added, taken: map[string]int{}, since: map[string]time.Duration{}}
	limit := func() repair.Limit {
		return repair.Limit{Burst: 1 + l.random.IntN(5), Every: time.Duration(1+l.random.IntN(20)) * time.Second}
	}
	l.limits = repair.Limits{Writes: limit(), Disruptions: limit(), PerOwner: limit(), PerPod: limit()}
	l.budget = repair.NewBudget(l.limits)
	return l
}

func (l *life) action() repair.Action {
	modes := []repair.Mode{repair.ModeLabel, repair.ModeDelete, repair.ModeEvict, repair.ModeRepair}
	owner := ""
	if n := l.random.IntN(4); n > 0 {
		owner = fmt.Sprintf("ReplicaSet shop/%d", n)
	}
	return action(modes[l.random.IntN(len(modes))], fmt.Sprint(l.random.IntN(8)), owner)
}

func (l *life) pass(d time.Duration) {
	l.now = l.now.Add(d)
	l.forward += max(d, 0)
}

// took counts an action, and returns which limit it broke.
func (l *life) took(a repair.Action) string {
	broken := ""
	count := func(name, key string, limit repair.Limit) {
		key = name + " " + key
		if l.taken[key]++; l.taken[key] == 1 {
			l.since[key] = l.forward
		}
		if l.taken[key] > limit.Burst+int((l.forward-l.since[key])/limit.Every) {
			broken = key
		}
	}
	count("writes", "", l.limits.Writes)
	count("per pod", a.Target.Name, l.limits.PerPod)
	if a.Do == repair.ModeDelete || a.Do == repair.ModeEvict {
		count("disruptions", "", l.limits.Disruptions)
		owner := a.Owner
		if owner == "" {
			owner = a.Target.Name
		}
		count("per owner", owner, l.limits.PerOwner)
	}
	return broken
}

// TestBudgetIsKept: whatever the actions and the clock, no limit allows more than its burst and
// what was restored since.
func TestBudgetIsKept(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		l := newLife(seed)
		for range 400 {
			step := time.Duration(l.random.IntN(3000)) * time.Millisecond
			if seed%2 == 1 && l.random.IntN(10) == 0 {
				step = -20 * step
			}
			l.pass(step)
			a := l.action()
			next, err := l.budget.Take(a, l.now)
			if err != nil {
				if !reflect.DeepEqual(next, l.budget) {
					t.Fatalf("seed %d: a refusal took something", seed)
				}
				continue
			}
			if broken := l.took(a); broken != "" {
				t.Fatalf("seed %d: %s was taken %d times: %+v", seed, broken, l.taken[broken], l.limits)
			}
			l.budget = next
		}
	}
}

// TestBudgetWaits: the action is allowed after the time in a refusal, and not earlier.
func TestBudgetWaits(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		l := newLife(seed)
		for range 200 {
			l.pass(time.Duration(l.random.IntN(1000)) * time.Millisecond)
			a := l.action()
			next, err := l.budget.Take(a, l.now)
			var over *repair.LimitError
			if errors.As(err, &over) {
				if _, err := l.budget.Take(a, l.now.Add(over.Wait-1)); err == nil {
					t.Fatalf("seed %d: allowed before %s", seed, over.Wait)
				}
				l.pass(over.Wait)
				if next, err = l.budget.Take(a, l.now); err != nil {
					t.Fatalf("seed %d: after %s: %v", seed, over.Wait, err)
				}
			}
			l.budget = next
		}
	}
}

// TestBudgetIsAValue: what was taken from one budget is not missing in another.
func TestBudgetIsAValue(t *testing.T) {
	t.Parallel()
	full := repair.NewBudget(repair.DefaultLimits())
	a := action(repair.ModeDelete, "a", "ReplicaSet shop/a")
	first, err := full.Take(a, added)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Take(a, added); err == nil {
		t.Error("taken twice")
	}
	second, err := full.Take(a, added)
	if err != nil || !reflect.DeepEqual(first, second) {
		t.Errorf("the same budget, action and time, and another result: %v", err)
	}
	third, err := first.Take(action(repair.ModeDelete, "b", "ReplicaSet shop/b"), added)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Take(action(repair.ModeDelete, "b", "ReplicaSet shop/b"), added); err != nil {
		t.Errorf("missing after it was taken from another: %v", err)
	}
	_ = third
}

// TestBudgetAfterTheClockWentBack: the wait is no longer than the budget takes to be full.
func TestBudgetAfterTheClockWentBack(t *testing.T) {
	t.Parallel()
	limits := repair.Limits{Writes: repair.Limit{Burst: 2, Every: time.Minute}, PerPod: free()}
	budget, err := repair.NewBudget(limits).Take(action(repair.ModeLabel, "a", ""), added)
	if err != nil {
		t.Fatal(err)
	}
	_, err = budget.Take(action(repair.ModeLabel, "b", ""), added.AddDate(-1, 0, 0))
	var over *repair.LimitError
	if !errors.As(err, &over) || over.Wait != time.Minute {
		t.Errorf("got %v", err)
	}
}

// TestBudgetForgets: a budget remembers no more than what its writes allow within the time that a
// limit takes to be full.
func TestBudgetForgets(t *testing.T) {
	t.Parallel()
	limits := repair.DefaultLimits()
	budget, now := repair.NewBudget(limits), added
	most := 0
	for i := range 2000 {
		next, err := budget.Take(action(repair.ModeDelete, fmt.Sprint("pod-", i), fmt.Sprint("ReplicaSet shop/", i)), now)
		if err == nil {
			budget = next
		}
		most = max(most, budget.Size())
		now = now.Add(5 * time.Second)
	}
	// In a minute at most three deletions and one more: a pod and an owner each, besides the two
	// common limits.
	if most > 2+2*4 {
		t.Errorf("it remembers %d", most)
	}
}

// TestWithoutDisruptions: labels go on, and deletions are earned one after the other.
func TestWithoutDisruptions(t *testing.T) {
	t.Parallel()
	limits := repair.Limits{Writes: free(), Disruptions: repair.Limit{Burst: 2, Every: time.Minute}, PerOwner: free(), PerPod: free()}
	budget := repair.NewBudget(limits).WithoutDisruptions(added)
	if _, err := budget.Take(action(repair.ModeLabel, "a", ""), added); err != nil {
		t.Error(err)
	}
	var over *repair.LimitError
	if _, err := budget.Take(action(repair.ModeDelete, "a", ""), added); !errors.As(err, &over) || over.Wait != time.Minute {
		t.Errorf("at once: %v, want a wait of a minute", err)
	}
	if _, err := budget.Take(action(repair.ModeDelete, "a", ""), added.Add(time.Minute)); err != nil {
		t.Error(err)
	}
}
