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
	// Done is how many of its steps were done, from the first on; see [Plan.Steps]. It is zero in a plan that was not tried.
	Done int
	// Err says what can't be done; it wraps [ErrWaiting] or [ErrRefused]. There may be steps all the same.
	Err error
	// Again, unless it is zero, is when to look again although nothing has changed.
	Again time.Time
	// Notes are things worth knowing that hinder nothing.
	Notes []string

	// steps are to be done in order. A step that doesn't find what it expects ends them, and the directory is looked at again.
	steps []step
}

// Steps is how many things are to be done, those that are done already among them.
func (p Plan) Steps() int { return len(p.steps) }

// An Edit is a configuration that is written or removed.
type Edit struct {
	// File is the path in the directory, with slashes.
	File string
	// Removed says that the file is removed.
	Removed bool
	// Done says that it was written or removed.
	Done bool
	// Why is the reason, for people; empty where the plan's change says it.
	Why string
}

// Edits are the steps that write or remove configurations, in order.
func (p Plan) Edits() []Edit {
	var edits []Edit
	for i, s := range p.steps {
		if s.op == opWrite || s.op == opRemove {
			edits = append(edits, Edit{File: s.file, Removed: s.op == opRemove, Done: i < p.Done, Why: s.why})
		}
	}
	return edits
}

// op is a kind of step.
type op string

// The kinds of steps.
const (
	// opWrite replaces a file by one with other content or mode, or makes it.
	opWrite op = "write"
	// opRemove removes a file.
	opRemove op = "remove"
	// opMakeDirectory makes a network's directory.
	opMakeDirectory op = "mkdir"
	// opRemoveDirectory removes a network's directory, if nothing is in it.
	opRemoveDirectory op = "rmdir"
	// opNudge makes and removes a file that no runtime loads. containerd watches the directory itself, and not those in it.
	opNudge op = "nudge"
	// opRecord records a place in the claim.
	opRecord op = "record"
	// opForget removes a place from the claim.
	opForget op = "forget"
)

// step is one thing to do.
type step struct {
	op   op
	file string // the path in the directory, with slashes
	why  string // the reason, for people; empty where the plan's change says it

	data   []byte      // what to write
	expect []byte      // what file must hold, so that no other program's edit is lost; nil: it must not exist
	like   string      // the file beside it whose owner and permission bits are taken; empty: the file is our own, with mode
	link   string      // the symbolic link that must lead to file; empty: it doesn't matter
	mode   fs.FileMode // of our own
	place  placement   // what to record
}

// String is one line.
func (s step) String() string {
	text := string(s.op)
	if s.file != "" {
		text += " " + s.file
	}
	if s.op == opWrite {
		text += fmt.Sprintf(" (%d bytes)", len(s.data))
	}
	if s.why != "" {
		text += ": " + s.why
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
func (p Plan) Restores() bool { return len(p.steps) > 0 && p.Change != nil && p.Change.Hostile() }

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
	for _, s := range p.steps {
		line("step", s.String())
	}
	for _, n := range p.Notes {
		line("note", n)
	}
	if p.Err != nil {
		line("problem", p.Err.Error())
	}
	if len(p.steps) == 0 && p.Err == nil {
		line("nothing", "to do")
	}
	return out.String()
}
