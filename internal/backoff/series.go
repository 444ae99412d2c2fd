// SPDX-License-Identifier: Apache-2.0

package backoff

import "time"

// Series turns events into pauses: none for the first Free events, then from First on, doubling up to Most. An event that comes later than
// Calm after the pause before it begins a new series. A Series is used by one goroutine.
type Series struct {
	Free              int
	First, Most, Calm time.Duration

	count int
	until time.Time // end of the last pause
}

// Next counts an event and returns the pause that follows it.
func (s *Series) Next(now time.Time) time.Duration {
	if now.Sub(s.until) > s.Calm {
		s.count = 0
	}
	s.count++
	pause := time.Duration(0)
	if over := s.count - s.Free; over > 0 {
		pause = s.Most
		if shift := over - 1; shift < 32 && s.First<<shift < s.Most {
			pause = s.First << shift
		}
	}
	s.until = now.Add(pause)
	return pause
}

// Count is how many events the series has had.
func (s *Series) Count() int { return s.count }

// Reset begins a new series.
func (s *Series) Reset() { s.count, s.until = 0, time.Time{} }

// Fights paces restores of what somebody else keeps changing: ten at once, then with pauses from 100 ms up to half a minute.
func Fights() Series {
	return Series{Free: 10, First: 100 * time.Millisecond, Most: 30 * time.Second, Calm: 10 * time.Second}
}

// Failures paces attempts at what fails: after a second, then two, up to a minute.
func Failures() Series {
	return Series{First: time.Second, Most: time.Minute, Calm: 2 * time.Minute}
}
