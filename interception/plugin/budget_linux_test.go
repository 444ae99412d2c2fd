// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// budget remembers which limits are not kept.
type budget struct{ unmet []string }

// verdict is the limit, and whether it is kept.
func (b *budget) verdict(what string, got, limit float64) string {
	switch {
	case limit == unbounded:
		return "-\t"
	case math.IsNaN(got) || got > limit:
		b.unmet = append(b.unmet, fmt.Sprintf("%s: %.2f, and the budget is %.2f", what, got, limit))
		return fmt.Sprintf("%.2f\tNOT MET", limit)
	default:
		return fmt.Sprintf("%.2f\tmet", limit)
	}
}

// enforce fails the benchmark for each limit that is not kept.
func (b *budget) enforce(t interface{ Errorf(string, ...any) }) {
	for _, what := range b.unmet {
		t.Errorf("NOT MET: %s", what)
	}
}

// failures are what a benchmark reported.
type failures []string

func (f *failures) Errorf(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

func TestABudgetThatIsNotMetFailsTheBenchmark(t *testing.T) {
	t.Parallel()
	const name = "ADD"
	m := &measurement{TB: t, plugin: "testdata/pod.json", costs: map[string][]cost{}, ofEmpty: map[string][]cost{}, applied: []float64{mostApply + 1}}
	for _, kind := range []string{name, captured, byAgent, besideEnroller, manyCIDRs, parallelADD, outside, outside + withAmbient, bySocket, bySocket + withAmbient, onlyVersion, enrolled} {
		m.costs[kind], m.ofEmpty[kind] = []cost{{wall: 2, cpu: 3, rss: 1}}, []cost{{wall: 1, cpu: 1}}
	}
	m.costs[enrolled] = []cost{{wall: 1.3, cpu: 3}}
	m.costs[outside] = []cost{{wall: 2, cpu: 4, rss: 1}}
	m.costs[outside+withAmbient] = []cost{{wall: 2, cpu: 6.4, rss: 1}}
	m.costs[besideEnroller] = []cost{{wall: 1, cpu: 3}}
	m.costs[byAgent] = []cost{{wall: 1, cpu: 3, agent: 0.5}} // the plugin alone would be within the budget
	table := m.table([]budgetCase{{name: name, limit: 2.5, resident: mostResident}})
	var told failures
	m.budget.enforce(&told)
	want := []string{
		"NOT MET: ADD, CPU: 3.00, and the budget is 2.50",
		"NOT MET: " + outside + ", CPU / " + onlyVersion + ": 1.33, and the budget is 1.30",
		"NOT MET: " + outside + withAmbient + ", CPU / " + outside + ": 1.60, and the budget is 1.50",
		"NOT MET: " + byAgent + ", all processes' CPU / " + captured + ": 1.17, and the budget is 1.00",
		"NOT MET: " + enrolled + ", wall / " + besideEnroller + ": 1.30, and the budget is 1.20",
		"NOT MET: " + inProcess + ", wall ms, default plan, fresh namespace: 2.00, and the budget is 1.00",
	}
	for _, line := range want {
		if !strings.Contains(strings.Join(told, "\n"), line) {
			t.Errorf("the benchmark is not told %q, but %q", line, told)
		}
	}
	if got := strings.Count(table, "NOT MET"); got != len(want) || len(told) != len(want) {
		t.Errorf("NOT MET is printed %d times, and told as %q:\n%s", got, told, table)
	}
}

func TestABudgetThatIsMet(t *testing.T) {
	t.Parallel()
	var b budget
	var told failures
	b.verdict("at the limit", 1, 1)
	b.verdict("without a limit", 1, unbounded)
	if b.enforce(&told); told != nil {
		t.Errorf("got %q", told)
	}
	b.verdict("no number", math.NaN(), 1)
	if b.enforce(&told); len(told) != 1 {
		t.Errorf("got %q", told)
	}
}
