// SPDX-License-Identifier: Apache-2.0

package upkeep

import (
	"time"

	"github.com/meshcni/meshcni/internal/backoff"
)

// quarrel tells a fight with another program from single restores, and when to speak of it.
type quarrel struct {
	restores backoff.Streak
	on       bool
	told     time.Time
}

const (
	fightFrom = 5           // restores
	tellEvery = time.Minute // while it goes on
)

// note takes down that a pass restored something, or that its writes are paused.
func (q *quarrel) note(now time.Time, paused bool) Fight {
	count := q.restores.Add(now)
	switch {
	case !q.on && (paused || count >= fightFrom):
		q.on, q.told = true, now
		return FightBegan
	case q.on && now.Sub(q.told) >= tellEvery:
		q.told = now
		return FightGoesOn
	}
	return NoNews
}

// settle ends a fight after a minute in peace.
func (q *quarrel) settle(now time.Time) Fight {
	if !q.on || !q.restores.Over(now) {
		return NoNews
	}
	q.on = false
	return FightOver
}
