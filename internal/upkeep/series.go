// SPDX-License-Identifier: Apache-2.0

package upkeep

import "time"

// Series turns failures into pauses: First, doubled each time up to Most. A failure later than Calm
// after the end of the last pause begins a new series. Only one goroutine may use a Series.
type Series struct {
	First, Most, Calm time.Duration

	count int
	until time.Time // end of the last pause
}

// Next counts a failure and returns the pause that follows it.
func (s *Series) Next(now time.Time) time.Duration {
	if now.Sub(s.until) > s.Calm {
		s.count = 0
	}
	s.count++
	pause := s.Most
	if shift := s.count - 1; shift < 32 && s.First<<shift < s.Most {
		pause = s.First << shift
	}
	s.until = now.Add(pause)
	return pause
}

// Count returns the number of failures in the series.
func (s *Series) Count() int { return s.count }

// Reset begins a new series.
func (s *Series) Reset() { s.count, s.until = 0, time.Time{} }

// Failures paces attempts after failures: a second, then two, up to a minute.
func Failures() Series {
	return Series{First: time.Second, Most: time.Minute, Calm: 2 * time.Minute}
}

// Bucket paces something that may happen often for a short while, and seldom for long: Burst times
// at once, and then once in each Every. Only one goroutine may use a Bucket.
type Bucket struct {
	Burst int
	Every time.Duration

	full time.Time // when the bucket is full again
}

// Restores paces restores of what another program keeps undoing: ten at once, then two a second.
func Restores() Bucket { return Bucket{Burst: 10, Every: time.Second / 2} }

// Take takes a token, and returns how long to wait before the next: at most Every.
func (b *Bucket) Take(now time.Time) time.Duration {
	if b.full.Before(now) {
		b.full = now
	}
	b.full = b.full.Add(b.Every)
	empty := now.Add(time.Duration(b.Burst) * b.Every)
	if b.full.After(empty) { // the clock went back, or the caller did not wait
		b.full = empty
	}
	return max(0, b.full.Sub(empty)+b.Every)
}

// Streak counts events that follow each other closely: each within a minute of the one before. It
// distinguishes a program that keeps undoing something from one that did it once. The zero value is
// ready for use, by one goroutine.
type Streak struct {
	count int
	last  time.Time
}

// calm is the time without events after which a new streak begins.
const calm = time.Minute

// Add counts an event, and returns its number in the streak.
func (s *Streak) Add(now time.Time) int {
	if s.Over(now) {
		s.count = 0
	}
	s.count++
	s.last = now
	return s.count
}

// Count returns the number of events in the streak.
func (s *Streak) Count() int { return s.count }

// Over reports whether the last event was long ago, or there was none.
func (s *Streak) Over(now time.Time) bool { return s.count == 0 || !now.Before(s.Ends()) }

// Ends returns when the streak is over unless another event comes before.
func (s *Streak) Ends() time.Time { return s.last.Add(calm) }
