// SPDX-License-Identifier: Apache-2.0

package lower_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
)

// planOf returns a plan with an entry in a hook for each of the offsets given for a table.
func planOf(owner interception.Owner, hook interception.Hook, tables ...interception.Table) *interception.Plan {
	plan := &interception.Plan{Owner: owner}
	for _, table := range tables {
		for i := range table.Entries {
			table.Entries[i].Hook = hook
		}
		plan.Objects = append(plan.Objects, table)
	}
	return plan
}

func tableOf(kind interception.TableKind, offsets ...int32) interception.Table {
	table := interception.Table{Kind: kind}
	for _, offset := range offsets {
		table.Entries = append(table.Entries, interception.Entry{Offset: offset})
	}
	return table
}

func TestSchedule(t *testing.T) {
	t.Parallel()
	mesh := func(hook interception.Hook) []*interception.Plan {
		return []*interception.Plan{
			planOf("mesh-a", hook, tableOf(interception.Raw, 100, 0, 100), tableOf(interception.Mangle, 0), tableOf(interception.NAT, 0, 10),
				tableOf(interception.Filter, 0, math.MaxInt32)),
			planOf("mesh-b", hook, tableOf(interception.NAT, 0), tableOf(interception.Mangle, -150), tableOf(interception.Filter, math.MinInt32)),
		}
	}
	for hook, want := range map[interception.Hook]string{
		interception.Output: "filter 6 -2147483648 [0]; raw 0 -300 [1]; mangle 5 -300 [0]; raw 0 -200 [0 2]; tracking; mangle 1 -150 [0]; " +
			"translating nat 2 -100 [0], nat 4 -100 [0], nat 2 -90 [1]; filter 3 0 [0]; filter 3 2147483647 [1]",
		interception.Input: "filter 6 -2147483648 [0]; raw 0 -300 [1]; mangle 5 -300 [0]; raw 0 -200 [0 2]; mangle 1 -150 [0]; filter 3 0 [0]; " +
			"translating nat 2 100 [0], nat 4 100 [0], nat 2 110 [1]; filter 3 2147483647 [1]",
		interception.Forward: "filter 6 -2147483648 [0]; raw 0 -300 [1]; mangle 5 -300 [0]; raw 0 -200 [0 2]; mangle 1 -150 [0]; filter 3 0 [0]; " +
			"filter 3 2147483647 [1]",
	} {
		if diff := cmp.Diff(want, scheduleText(lower.Schedule(hook, mesh(hook)))); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", hook, diff)
		}
	}
}

// Ties: the last base chain of a plan comes first; of two plans, the first plan's.
func TestScheduleOfTies(t *testing.T) {
	t.Parallel()
	got := scheduleText(lower.Schedule(interception.Forward, []*interception.Plan{
		planOf("mesh-a", interception.Forward, tableOf(interception.Mangle, 0), tableOf(interception.Filter, -150)),
		planOf("mesh-b", interception.Forward, tableOf(interception.Mangle, 0)),
	}))
	if want := "filter 1 -150 [0]; mangle 0 -150 [0]; mangle 2 -150 [0]"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func scheduleText(stages []lower.Stage) string {
	var texts []string
	for _, stage := range stages {
		var bases []string
		for _, b := range stage.Bases {
			bases = append(bases, fmt.Sprintf("%s %d %d %v", b.Table.Kind, b.Number, b.Priority, b.Entries))
		}
		kind := map[lower.StageKind]string{lower.Tracking: "tracking", lower.Translating: "translating "}[stage.Kind]
		texts = append(texts, kind+strings.Join(bases, ", "))
	}
	return strings.Join(texts, "; ")
}
