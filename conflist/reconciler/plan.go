// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// ErrWaiting is in the error of a [Plan] that lacks something only others can bring; there is no use in trying before something changes.
var ErrWaiting = errors.New("waiting")

// ErrRefused is in the error of a [Plan] for what is there but can't be used, or mustn't be: somebody has to put it right.
var ErrRefused = errors.New("refused")

// Plan is what is to be done to a directory, and why: the dry run. With no steps and no error, everything is in place.
type Plan struct {
	// Mode is the way to install that is followed, never [Auto]; empty in the plan of a removal.
	Mode Mode
	// Reason says why this one.
	Reason string
	// Primary is the file whose network the plugin is chained to; empty while there is none, and with [Standalone].
	Primary string
	// File is where the plugin stands when all steps are done; empty while it can't stand anywhere. It is a path in the directory, with
	// slashes. Where Primary is a symbolic link, Splice has it be the link's target.
	File string
	// Through are the paths in the directory by which its symbolic links lead. A change of one matters as that of a configuration does.
	Through []string
	// Status says whether the runtime will ask the plugin for its status.
	Status Status
	// Change says why the directory isn't as it should be; nil if nothing but the claim has to be written.
	Change *Change
	// Steps are to be done in order. A step that doesn't find what it expects ends them, and the directory is looked at again.
	Steps []Step
	// Done is how many of the steps were done, from the first on. It is zero in a plan that was not tried.
	Done int
	// Err says what can't be done; it wraps [ErrWaiting] or [ErrRefused]. There may be steps all the same.
	Err error
	// Again, unless it is zero, is when to look again although nothing has changed.
	Again time.Time
	// Notes are things worth knowing that hinder nothing.
	Notes []string
}

// Op is a kind of step.
type Op string

// The kinds of steps.
const (
	// OpWrite replaces a file by one with other content or mode, or makes it.
	OpWrite Op = "write"
	// OpRemove removes a file.
	OpRemove Op = "remove"
	// OpMakeDirectory makes a network's directory.
	OpMakeDirectory Op = "mkdir"
	// OpRemoveDirectory removes a network's directory, if nothing is in it.
	OpRemoveDirectory Op = "rmdir"
	// OpNudge makes and removes a file that no runtime loads. containerd watches the directory itself, and not those in it.
	OpNudge Op = "nudge"
	// OpRecord records a place in the claim.
	OpRecord Op = "record"
	// OpForget removes a place from the claim.
	OpForget Op = "forget"
)

// Step is one thing to do.
type Step struct {
	Op Op
	// File is the path in the directory, with slashes.
	File string
	// Why is the reason, for people; empty where the plan's change says it.
	Why string

	data   []byte      // what to write
	expect []byte      // what File must hold, so that nobody's work is lost; nil: it mustn't be there
	like   string      // the file beside it whose owner and permission bits are taken; empty: the file is our own, with mode
	link   string      // the symbolic link that must lead to File; empty: it doesn't matter
	mode   fs.FileMode // of our own
	place  placement   // what to record
}

// String is one line.
func (s Step) String() string {
	text := string(s.Op)
	if s.File != "" {
		text += " " + s.File
	}
	if s.Op == OpWrite {
		text += fmt.Sprintf(" (%d bytes)", len(s.data))
	}
	if s.Why != "" {
		text += ": " + s.Why
	}
	return text
}

// Status says whether a container runtime will ask the plugin for its status (CNI 1.1), by which a plugin that isn't ready keeps pods from
// being started without it.
type Status struct {
	Asked bool
	// Why is the reason, and what would change it.
	Why string
}

// String is one line.
func (s Status) String() string {
	answer := "no"
	if s.Asked {
		answer = "yes"
	}
	return answer + ": " + s.Why
}

// Restores reports whether its steps put back what somebody has undone.
func (p Plan) Restores() bool { return len(p.Steps) > 0 && p.Change != nil && p.Change.Hostile() }

// Directories are the directories below the one of CNI configurations whose changes matter, by their paths in it, with slashes.
func (p Plan) Directories() []string {
	var directories []string
	for _, file := range append([]string{p.File}, p.Through...) {
		for above := path.Dir(file); above != "."; above = path.Dir(above) {
			directories = append(directories, above)
		}
	}
	slices.Sort(directories)
	return slices.Compact(directories)
}

// String shows the plan, a line for each fact and each step.
func (p Plan) String() string {
	var out strings.Builder
	line := func(key, value string) {
		if value != "" {
			fmt.Fprintf(&out, "%-8s %s\n", key, value)
		}
	}
	if p.Mode != "" {
		line("mode", fmt.Sprintf("%s: %s", p.Mode, p.Reason))
	}
	line("primary", p.Primary)
	line("file", p.File)
	if p.Status != (Status{}) {
		line("STATUS", p.Status.String())
	}
	if p.Change != nil {
		line("change", p.Change.String())
	}
	for _, s := range p.Steps {
		line("step", s.String())
	}
	for _, n := range p.Notes {
		line("note", n)
	}
	if p.Err != nil {
		line("problem", p.Err.Error())
	}
	if len(p.Steps) == 0 && p.Err == nil {
		line("nothing", "to do")
	}
	return out.String()
}
