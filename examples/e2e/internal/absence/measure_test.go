// SPDX-License-Identifier: Apache-2.0

package absence_test

import (
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/examples/e2e/internal/absence"
)

// TestCheck observes every millisecond something that disappears once a second.
func TestCheck(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	threads := func(waits ...time.Duration) absence.Waits {
		all := absence.Waits{}
		for i, wait := range waits {
			all[string(rune('a'+i))] = wait
		}
		return all
	}
	for name, test := range map[string]struct {
		gap, last     time.Duration // the gap, and the time between its last two observations
		before, after absence.Waits
		want          string
	}{
		"at once":                        {5 * ms, ms, nil, nil, ""},
		"late, on an idle machine":       {30 * ms, ms, nil, nil, "3.100 % of the time"},
		"at the limit":                   {9 * ms, ms, nil, nil, "1.000 % of the time"},
		"ended unseen for long":          {5 * ms, 20 * ms, nil, nil, "2.500 % of the time"},
		"one thread waited":              {30 * ms, ms, threads(0, 0), threads(0, 25*ms), ""},
		"threads waited at once":         {30 * ms, ms, threads(0, 0, 0), threads(10*ms, 10*ms, 10*ms), "2.100 % of the time (3.100 %"},
		"one waited before":              {30 * ms, ms, threads(25 * ms), threads(25 * ms), "3.100 %"},
		"one is new, and has waited":     {30 * ms, ms, nil, threads(25 * ms), ""},
		"too long, waiting all the time": {1200 * ms, ms, nil, threads(2000 * ms), "1.201s at a time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var m absence.Measure
			for range 10 {
				if err := m.Begin(func() (absence.Waits, error) { return test.before, nil }); err != nil {
					t.Fatal(err)
				}
				after := func() (absence.Waits, error) { return test.after, nil }
				for range test.gap / ms {
					if err := m.See(false, ms, after); err != nil {
						t.Fatal(err)
					}
				}
				for range 2 { // the second observation ends no gap
					if err := m.See(true, test.last, after); err != nil {
						t.Fatal(err)
					}
				}
				m.Watched += time.Second
			}
			err := m.Check()
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// TestAGapThatGoesOn counts a gap that has not ended.
func TestAGapThatGoesOn(t *testing.T) {
	t.Parallel()
	m := absence.Measure{Watched: time.Minute}
	none := func() (absence.Waits, error) { return nil, nil }
	if err := m.See(false, 700*time.Millisecond, none); err != nil {
		t.Fatal(err)
	}
	if err := m.Check(); err == nil || !strings.Contains(err.Error(), "1.167 %") {
		t.Errorf("got %v", err)
	}
	if err := m.See(false, 400*time.Millisecond, none); err != nil || m.Longest != 1100*time.Millisecond {
		t.Errorf("got %v, %v", m.Longest, err)
	}
	if err := (&absence.Measure{}).Check(); err == nil {
		t.Error("nothing was measured, and that is well")
	}
}
