// SPDX-License-Identifier: Apache-2.0

package upkeep

import (
	"context"
	"time"
)

// Task keeps one thing right. Its methods are never called concurrently.
type Task interface {
	// Directories returns the directories to watch. They may be missing.
	Directories() []string
	// Concerns reports whether a change of the file at path, in one of the directories, may matter.
	Concerns(path string) bool
	// Pass looks once, and does what is necessary.
	Pass(ctx context.Context) Result
	// Observe receives the result of each pass, and what follows from it.
	Observe(result Result, pace Pace)
}

// Outcome is the outcome of a pass.
type Outcome int

// The outcomes.
const (
	// Right means that nothing had to be done.
	Right Outcome = iota
	// Waiting means that something is missing that only other programs can provide.
	Waiting
	// Wrote means that something was written, for a reason of our own. The task is due again.
	Wrote
	// Restored means that something was written because another program or the operator had undone
	// it. The task is looked at again at once.
	Restored
	// Overtaken means that another program wrote at the same time. The task is due again.
	Overtaken
	// Failed means that something went wrong. The task is tried again after a pause.
	Failed
)

// String is one word.
func (o Outcome) String() string {
	return [...]string{"right", "waiting", "wrote", "restored", "overtaken", "failed"}[o]
}

// Result is the outcome of a pass, and when to look again.
type Result struct {
	Outcome Outcome
	// Again, unless it is zero, is when to look again even if nothing changes.
	Again time.Time
	// Err is for Observe.
	Err error
}

// Pace is what follows from a pass.
type Pace struct {
	// Pause is the time until the next pass. After a failure it ends early when something changes.
	Pause time.Duration
	// Count is the restores so far, each within a minute of the last; zero without one.
	Count int
	// Fight is what is new in a fight with another program.
	Fight Fight
}

// Fight is what is new in a fight: another program keeps undoing what a task does. A fight begins
// with the fifth restore, each within a minute of the one before, or when writes are so frequent
// that they are paused. It ends after a minute without any.
type Fight int

// The news of a fight.
const (
	// NoNews means that no fight is on, or that it was reported less than a minute ago.
	NoNews Fight = iota
	// FightBegan means that a fight has begun.
	FightBegan
	// FightGoesOn comes once a minute during a fight.
	FightGoesOn
	// FightOver means that a minute has passed in peace.
	FightOver
)

// Paced is a [Task] whose writes have a pace of their own. The default is [Restores].
type Paced interface {
	// Pace returns a full bucket.
	Pace() Bucket
}

// PaceOf returns the pace of the writes of a task, or of the object that a task wraps.
func PaceOf(of any) Bucket {
	if p, ok := of.(Paced); ok {
		return p.Pace()
	}
	return Restores()
}
