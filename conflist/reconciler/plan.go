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

// ErrWaiting is in the error of a [Plan] that lacks something that only other programs can provide.
// Trying again makes no sense before something changes.
var ErrWaiting = errors.New("waiting")

// ErrRefused is in the error of a [Plan] if something exists that cannot, or must not, be used. The
// operator has to correct it.
var ErrRefused = errors.New("refused")

// Plan is what is to be done to a directory, and why. Without steps or error, all is in place.
type Plan struct {
	// Mode is the mode in use, never [Auto]; empty in the plan of a removal.
	Mode Mode
	// Reason is why this mode is in use.
	Reason string
	// Primary is the file of the network to chain to; empty without one, and with [Standalone].
	Primary string
	// File is where the plugin is after all steps; empty while it cannot be installed. It is a path
	// in the directory, with slashes. If Primary is a symbolic link, Splice uses the link's target.
	File string
	// Through are the paths in the directory that its symbolic links pass through. A change of one
	// matters like that of a configuration.
	Through []string
	// Status is whether the runtime will ask the plugin for its status.
	Status Status
	// Change is why the directory differs from what is wanted; nil if at most the claim does.
	Change *Change
	// Done is the number of completed steps; see [Plan.Steps]. It is zero in a dry run.
	Done int
	// Err is why the plan is incomplete; it wraps [ErrWaiting] or [ErrRefused]. It may
	// have steps all the same.
	Err error
	// Again, unless it is zero, is when to look again even if nothing changes.
	Again time.Time
	// Notes are facts worth knowing that prevent nothing.
	Notes []string

	// steps are taken in order, up to one that does not find what it expects.
	steps []step
}

// Steps returns the number of steps, including completed ones.
func (p Plan) Steps() int { return len(p.steps) }

// Edit is a configuration that is written or removed.
type Edit struct {
	// File is the path in the directory, with slashes.
	File string
	// Removed means that the file is removed.
	Removed bool
	// Done means that the step is completed.
	Done bool
	// Why is the reason, for people; empty if it is the plan's change.
	Why string
}

// Edits returns the steps that write or remove configurations, in order.
func (p Plan) Edits() []Edit {
	var edits []Edit
	for i, s := range p.steps {
		if s.op == opWrite || s.op == opRemove {
			edits = append(edits, Edit{File: s.file, Removed: s.op == opRemove, Done: i < p.Done, Why: s.why})
		}
	}
	return edits
}

type op string

const (
	// opWrite creates a file, or replaces its content or mode.
	opWrite         op = "write"
	opRemove        op = "remove"
	opMakeDirectory op = "mkdir"
	// opRemoveDirectory removes a network's directory, if it is empty.
	opRemoveDirectory op = "rmdir"
	// opNudge creates and removes a file that no runtime loads. containerd watches the directory
	// itself, and not those in it.
	opNudge  op = "nudge"
	opRecord op = "record"
	opForget op = "forget"
)

type step struct {
	op   op
	file string // the path in the directory, with slashes
	why  string // the reason, for people; empty if it is the plan's change

	data   []byte      // what to write
	expect []byte      // what file must hold, so that no edit is lost; nil: it must not exist
	like   string      // the file to copy owner and permission bits from; empty: ours, with mode
	link   string      // the symbolic link that must lead to file; empty: any or none
	mode   fs.FileMode // of our own file
	place  placement   // what to record
}

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

// Status is whether a container runtime will ask the plugin for its status (CNI 1.1). With it, a
// plugin that is not ready prevents pods from starting without the mesh.
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

// Restores reports whether the steps restore what another program or the operator has undone.
func (p Plan) Restores() bool { return len(p.steps) > 0 && p.Change != nil && p.Change.Hostile() }

// Directories returns the directories below the one of CNI configurations whose changes matter, as
// paths in it, with slashes.
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

// String returns the plan as text, a line for each fact and each step.
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
