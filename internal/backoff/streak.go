// SPDX-License-Identifier: Apache-2.0

package backoff

import "time"

// Streak counts events that follow each other closely: each within a minute of the one before. It tells a program that keeps undoing
// something from one that did it once. The zero value is ready for use, by one goroutine.
type Streak struct {
	count int
	last  time.Time
}

// calm is how long nothing happens before the next event begins another streak.
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

// Count is how many events the streak has had.
func (s *Streak) Count() int { return s.count }

// Over reports whether the last event was long ago, or there was none.
func (s *Streak) Over(now time.Time) bool { return s.count == 0 || !now.Before(s.Ends()) }

// Ends is when the streak is over unless something happens before.
func (s *Streak) Ends() time.Time { return s.last.Add(calm) }
