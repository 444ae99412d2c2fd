// SPDX-License-Identifier: Apache-2.0

package backoff

import "time"

// Bucket paces something that may happen often for a short while, and seldom for long: Burst times at once, and then once in each Every. A
// Bucket is used by one goroutine.
type Bucket struct {
	Burst int
	Every time.Duration

	full time.Time // when all tokens are there again
}

// Restores paces restores of what another program keeps undoing: ten at once, and then two a second.
func Restores() Bucket { return Bucket{Burst: 10, Every: time.Second / 2} }

// Take takes a token. It returns how long to wait before the next one may be taken, which is never longer than Every.
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
