// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"fmt"
	"time"
)

// Event is something that [Reconciler.Run] has done or found. Its type is [Installed], [Restored],
// [Waiting], [Fighting], [Failed], [Settled] or [Unwatched]. As text it is one line, for a log.
type Event interface {
	fmt.Stringer
	event()
}

// Installed means that Run has put the plugin into a file for a reason of our own: at first, or
// because the entry, the mode or the list that is copied has changed.
type Installed struct {
	Plan Plan
}

// Restored means that Run has restored what another program had removed or changed.
type Restored struct {
	Plan Plan
	// File is the file that was changed, and By the program that did it, as far as is known.
	File string
	By   Culprit
	// Count is the number of restores in this series, each within a minute of the one before.
	Count int
}

// Fighting means that another program keeps undoing what Run restores, or keeps changing what Run
// copies. It comes at the fifth restore, or when writes are so frequent that Run pauses them, and
// then once a minute while the fight lasts.
type Fighting struct {
	// File is where the plugin belongs, and By the program that changes it. By is zero for a
	// program that only writes what Run copies.
	File string
	By   Culprit
	// Count is the restores and paused writes in this series, each within a minute of the last.
	Count int
	// Pause is the time until the next possible restore. It is zero for a program that leaves half
	// a second between its writes.
	Pause time.Duration
}

// Waiting means that something is missing or must be corrected: Plan.Err, or the error of
// Options.Ready. Run looks again when something changes.
type Waiting struct {
	Plan Plan
	Err  error
}

// Failed means that reading or writing failed. Run tries again later, and after changes.
type Failed struct {
	Plan  Plan
	Err   error
	Pause time.Duration
}

// Settled means that everything is in place. Run has verified that by reading it again.
type Settled struct {
	Plan Plan
}

// Unwatched means that changes are not seen, or were lost; Run looks at the directory from time to
// time instead. A nil error means that everything is watched again.
type Unwatched struct {
	Err error
}

func (Installed) event() {}
func (Restored) event()  {}
func (Fighting) event()  {}
func (Waiting) event()   {}
func (Failed) event()    {}
func (Settled) event()   {}
func (Unwatched) event() {}

// String is one line.
func (e Installed) String() string {
	if e.Plan.Change == nil {
		return "installed in " + e.Plan.File
	}
	return fmt.Sprintf("installed in %s (%s)", e.Plan.File, e.Plan.Change.Cause)
}

// String is one line.
func (e Restored) String() string {
	return fmt.Sprintf("restored in %s, %d times in this series; undone by %s", e.File, e.Count, e.By)
}

// String is one line.
func (e Fighting) String() string {
	what := fmt.Sprintf("%s keeps undoing it in %s", e.By, e.File)
	if e.By == (Culprit{}) {
		what = "another program keeps changing the configurations that " + e.File + " follows"
	}
	text := fmt.Sprintf("%s: %d times in this series", what, e.Count)
	if e.Pause > 0 {
		text += ", put back in " + e.Pause.String()
	}
	return text
}

// String is one line, unless the error has more.
func (e Waiting) String() string { return fmt.Sprintf("not in place: %v", e.Err) }

// String is one line, unless the error has more.
func (e Failed) String() string {
	return fmt.Sprintf("reading or writing failed, tried again in %s: %v", e.Pause, e.Err)
}

// String is one line.
func (e Settled) String() string { return "in place in " + e.Plan.File }

// String is one line, unless the error has more.
func (e Unwatched) String() string {
	if e.Err == nil {
		return "changes are seen again"
	}
	return fmt.Sprintf("changes are not seen, and looked for from time to time: %v", e.Err)
}
