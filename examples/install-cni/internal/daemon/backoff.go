// SPDX-License-Identifier: Apache-2.0

package daemon

import "time"

// backoff turns a series of events into pauses: none for the first free events, then from first on, doubling up to most. An event that
// comes later than calm after the pause before it begins a new series. The zero value of its unexported fields is a new series.
type backoff struct {
	free              int
	first, most, calm time.Duration

	count int
	until time.Time // end of the last pause
}

// next counts an event and returns the pause that follows it.
func (b *backoff) next(now time.Time) time.Duration {
	if now.Sub(b.until) > b.calm {
		b.count = 0
	}
	b.count++
	pause := time.Duration(0)
	if over := b.count - b.free; over > 0 {
		pause = b.most
		if shift := over - 1; shift < 32 && b.first<<shift < b.most {
			pause = b.first << shift
		}
	}
	b.until = now.Add(pause)
	return pause
}

// reset begins a new series.
func (b *backoff) reset() { b.count, b.until = 0, time.Time{} }

// fights paces restores of what somebody else keeps changing.
func fights() backoff {
	return backoff{free: 10, first: 100 * time.Millisecond, most: 30 * time.Second, calm: 10 * time.Second}
}

// failures paces attempts at what fails.
func failures() backoff {
	return backoff{first: time.Second, most: time.Minute, calm: 2 * time.Minute}
}
