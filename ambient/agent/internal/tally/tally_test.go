// SPDX-License-Identifier: Apache-2.0

package tally

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// counter is what is counted.
type counter struct {
	text  string
	err   error
	takes time.Duration
	asked int
}

func (c *counter) count(context.Context) (string, error) {
	c.asked++
	<-time.After(c.takes)
	return c.text, c.err
}

func counting() (*counter, *Tally) {
	c := &counter{text: "none"}
	return c, New(c.count)
}

// await waits until it is time for the next count.
func await(t *testing.T, tally *Tally) {
	t.Helper()
	if tally.Next().IsZero() {
		t.Fatal("there will be no count")
	}
	<-time.After(time.Until(tally.Next()))
}

func want(t *testing.T, tally *Tally, changed bool) {
	t.Helper()
	if got := tally.Changed(t.Context()); got != changed {
		t.Errorf("changed: %t, want %t", got, changed)
	}
}

func begin(t *testing.T, tally *Tally) {
	t.Helper()
	if err := tally.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestChanged changes what is counted, and what the count does not show.
func TestChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, tally := counting()
		want(t, tally, false) // before Begin
		begin(t, tally)
		await(t, tally)
		want(t, tally, false)
		c.text = "one"
		want(t, tally, false) // it is not time
		await(t, tally)
		want(t, tally, true)
		await(t, tally)
		want(t, tally, true) // the caller has not looked
		begin(t, tally)
		await(t, tally)
		want(t, tally, false)
	})
}

// TestRecount has the caller change something in each of several looks: it looks again after longer
// and longer pauses, whatever the count. A look that changes nothing ends that.
func TestRecount(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"some", ""} {
		synctest.Test(t, func(t *testing.T) {
			c, tally := counting()
			c.text = text
			begin(t, tally)
			for _, pause := range []time.Duration{1, 2, 4, 1} {
				tally.Recount(t.Context())
				changed := time.Now()
				for !tally.Changed(t.Context()) {
					await(t, tally)
				}
				if got := time.Since(changed); got != pause*Every {
					t.Errorf("the caller looks after %s, want %s", got, pause*Every)
				}
				begin(t, tally)
				if pause == 4 {
					begin(t, tally)
				}
			}
			for range 10 {
				if !tally.Next().IsZero() {
					await(t, tally)
				}
				want(t, tally, false)
			}
		})
	}
}

// TestUndoneChange has another program undo what the caller has changed: the next count shows it,
// long before the look that the caller is to have anyway.
func TestUndoneChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, tally := counting()
		for range 10 {
			c.text = "none"
			begin(t, tally)
			c.text = "one"
			tally.Recount(t.Context())
			c.text = "none"
			await(t, tally)
			want(t, tally, true)
			if got := tally.Next(); time.Until(got) > Every {
				t.Errorf("the next count comes after %s", time.Until(got))
			}
		}
	})
}

// TestPace has counts that take longer and longer.
func TestPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, tally := counting()
		for takes, pause := range map[time.Duration]time.Duration{
			0: Every, time.Millisecond: Every, 10 * time.Millisecond: time.Second, time.Second: Most,
		} {
			c.takes = takes
			begin(t, tally)
			wantPause(t, tally, pause)
			await(t, tally)
			want(t, tally, false)
			wantPause(t, tally, pause)
		}
	})
}

func wantPause(t *testing.T, tally *Tally, want time.Duration) {
	t.Helper()
	if got := time.Until(tally.Next()); got != want {
		t.Errorf("the next count comes after %s, want %s", got, want)
	}
}

// TestFailures has counts that fail: the caller looks after longer and longer pauses, without
// another count before.
func TestFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, tally := counting()
		begin(t, tally)
		c.err = errors.New("no luck")
		await(t, tally)
		want(t, tally, true)
		for _, pause := range []time.Duration{1, 2, 4} {
			if err := tally.Begin(t.Context()); !errors.Is(err, c.err) {
				t.Errorf("got the error %v", err)
			}
			wantPause(t, tally, pause*time.Second)
			if err := tally.Begin(t.Context()); !errors.Is(err, c.err) { // for another reason
				t.Errorf("got the error %v", err)
			}
			wantPause(t, tally, pause*time.Second)
			await(t, tally)
			asked := c.asked
			want(t, tally, true)
			if c.asked != asked {
				t.Error("there was another count")
			}
		}
		c.err = nil
		begin(t, tally)
		await(t, tally)
		want(t, tally, false)
	})
}

// TestNothingToCount has a count of nothing: none follows, unless the caller changes something.
func TestNothingToCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, tally := counting()
		c.text = ""
		begin(t, tally)
		if next := tally.Next(); !next.IsZero() {
			t.Errorf("a count comes at %s", next)
		}
		tally.Recount(t.Context())
		await(t, tally)
		want(t, tally, true)
		c.text = "one"
		begin(t, tally)
		await(t, tally)
		want(t, tally, false)
	})
}

// TestNothingCounts has no function that counts.
func TestNothingCounts(t *testing.T) {
	t.Parallel()
	tally := New(nil)
	begin(t, tally)
	tally.Recount(t.Context())
	want(t, tally, false)
	if next := tally.Next(); !next.IsZero() {
		t.Errorf("a count comes at %s", next)
	}
}
