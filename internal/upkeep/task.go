// SPDX-License-Identifier: Apache-2.0

package upkeep

import (
	"context"
	"time"
)

// Task keeps one thing right. Its methods are never called at once.
type Task interface {
	// Directories are to be watched for it. None needs to be there.
	Directories() []string
	// Concerns reports whether a change of the file at path, in one of the directories, may matter.
	Concerns(path string) bool
	// Pass looks once, and does what is to be done.
	Pass(ctx context.Context) Result
	// Tell is told of each pass what follows from it.
	Tell(result Result, pace Pace)
}

// Outcome is what a pass came to.
type Outcome int

// The outcomes.
const (
	// Right means that there was nothing to do.
	Right Outcome = iota
	// Waiting means that something is missing which only others can bring.
	Waiting
	// Wrote means that something was written, for a reason of our own. It is looked at again at once.
	Wrote
	// Restored means that something was written because others had undone it. It is looked at again at once.
	Restored
	// Overtaken means that others were writing at the same time. It is looked at again at once.
	Overtaken
	// Failed means that something went wrong. It is tried again after a pause.
	Failed
)

// String is one word.
func (o Outcome) String() string {
	return [...]string{"right", "waiting", "wrote", "restored", "overtaken", "failed"}[o]
}

// Result is what a pass came to, and when to look again.
type Result struct {
	Outcome Outcome
	// Again, unless it is zero, is when to look again although nothing changes.
	Again time.Time
	// Err is for Tell.
	Err error
}

// Pace says what follows from a pass.
type Pace struct {
	// Pause is the time until the next pass. Of a failure it ends early when something changes.
	Pause time.Duration
	// Count is how many restores, each within a minute of the one before, this one is the last of; zero if nothing was restored.
	Count int
	// Fight is what is new of a fight with another program.
	Fight Fight
}

// Fight is what is new of a fight: another program keeps undoing what a task does. It is on from the fifth restore on, each within a minute of
// the one before, or when writes come so fast that they are paused, and until a minute has passed without any.
type Fight int

// What there may be to tell of a fight.
const (
	// NoNews means that there is nothing to tell: there is no fight, or it was told of less than a minute ago.
	NoNews Fight = iota
	// FightBegan means that there is a fight now.
	FightBegan
	// FightGoesOn comes once a minute while there is one.
	FightGoesOn
	// FightOver means that a minute has passed in peace.
	FightOver
)

// Paced is a [Task] with writes that are paced otherwise than those of others. The pace of others is [Restores].
type Paced interface {
	// Pace is a full bucket.
	Pace() Bucket
}

// PaceOf is how the writes of a task, or of what stands for one, are paced.
func PaceOf(of any) Bucket {
	if p, ok := of.(Paced); ok {
		return p.Pace()
	}
	return Restores()
}
