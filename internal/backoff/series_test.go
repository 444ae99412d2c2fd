// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSeries(t *testing.T) {
	t.Parallel()
	b := Series{Free: 2, First: time.Second, Most: 5 * time.Second, Calm: 10 * time.Second}
	now := time.Unix(0, 0)
	step := func(after time.Duration) time.Duration { now = now.Add(after); return b.Next(now) }
	var got []time.Duration
	for range 7 {
		got = append(got, step(b.until.Sub(now)+time.Second)) // soon after each pause
	}
	want := []time.Duration{0, 0, time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pauses (-want +got):\n%s", diff)
	}
	if pause := step(16 * time.Second); pause != 0 {
		t.Errorf("pause %v after a calm", pause)
	}
	b.count = 1000
	if pause := step(time.Second); pause != b.Most {
		t.Errorf("pause %v in a very long series, want %v", pause, b.Most)
	}
	b.Reset()
	if pause := step(0); pause != 0 {
		t.Errorf("pause %v after a reset", pause)
	}
}

func TestBurstIsFree(t *testing.T) {
	t.Parallel()
	b, now := Fights(), time.Unix(1, 0)
	for i := range 10 {
		if pause := b.Next(now); pause != 0 {
			t.Errorf("restore %d is followed by a pause of %v", i+1, pause)
		}
	}
	if pause := b.Next(now); pause == 0 {
		t.Error("no pause after eleven restores in a row")
	}
}
