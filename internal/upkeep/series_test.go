// SPDX-License-Identifier: Apache-2.0

package upkeep

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSeries(t *testing.T) {
	t.Parallel()
	b := Series{First: time.Second, Most: 5 * time.Second, Calm: 10 * time.Second}
	now := time.Unix(0, 0)
	step := func(after time.Duration) time.Duration { now = now.Add(after); return b.Next(now) }
	var got []time.Duration
	for range 5 {
		got = append(got, step(b.until.Sub(now)+time.Second)) // soon after each pause
	}
	want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pauses (-want +got):\n%s", diff)
	}
	if pause := step(16 * time.Second); pause != b.First {
		t.Errorf("pause %v after a calm", pause)
	}
	b.count = 1000
	if pause := step(time.Second); pause != b.Most {
		t.Errorf("pause %v in a very long series, want %v", pause, b.Most)
	}
	b.Reset()
	if pause := step(0); pause != b.First {
		t.Errorf("pause %v after a reset", pause)
	}
}
