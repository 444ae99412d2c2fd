// SPDX-License-Identifier: Apache-2.0

package backoff

import "time"

// Series turns failures into pauses: from First on, doubling up to Most. One that comes later than Calm after the pause before it begins a
// new series. A Series is used by one goroutine.
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

// Count is how many failures the series has had.
func (s *Series) Count() int { return s.count }

// Reset begins a new series.
func (s *Series) Reset() { s.count, s.until = 0, time.Time{} }

// Failures paces attempts at what fails: after a second, then two, up to a minute.
func Failures() Series {
	return Series{First: time.Second, Most: time.Minute, Calm: 2 * time.Minute}
}
