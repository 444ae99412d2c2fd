// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"fmt"
	"path"
	"slices"

	"github.com/meshcni/meshcni/conflist"
)

// Cause is why a directory differs from what is wanted.
type Cause string

// The causes. After all but the first three, another program or the operator has undone our work.
const (
	// Fresh means that the plugin was not installed before.
	Fresh Cause = "fresh"
	// Updated means that our entry, file name or mode has changed.
	Updated Cause = "updated"
	// Propagated means that the list that was copied has changed.
	Propagated Cause = "propagated"
	// Overwritten means that another program rewrote the file without the entry.
	Overwritten Cause = "overwritten"
	// Tampered means that the entry or our own file was changed, doubled, or moved to the front.
	Tampered Cause = "tampered"
	// Removed means that the file is gone.
	Removed Cause = "removed"
	// RenamedAway means that the file was renamed to a name that no runtime loads.
	RenamedAway Cause = "renamed-away"
	// Preempted means that the runtime now takes another file.
	Preempted Cause = "preempted"
)

// Change is why a directory differs from what is wanted.
type Change struct {
	Cause Cause
	// File is the file that had the plugin or lacks it.
	File string
	// By is the program that changed it, as far as the files show; zero for our own changes.
	By Culprit
}

// Hostile reports whether another program or the operator has undone our work.
func (c Change) Hostile() bool {
	return !slices.Contains([]Cause{Fresh, Updated, Propagated}, c.Cause)
}

// String is one line.
func (c Change) String() string {
	if c.By == (Culprit{}) {
		return fmt.Sprintf("%s %s", c.Cause, c.File)
	}
	return fmt.Sprintf("%s %s, by %s", c.Cause, c.File, c.By)
}

// Culprit is the program that has changed a file, as inferred from the files.
type Culprit struct {
	// Name is short, such as a plugin's type: "cilium", "calico", or "unknown".
	Name string
	// Evidence is what the name was inferred from.
	Evidence string
}

// String is one line.
func (c Culprit) String() string { return fmt.Sprintf("%s (%s)", c.Name, c.Evidence) }

// change returns why the plugin must be written into a file: the claim has no record of the file
// (known is false), or the file differs from its record.
func (d *decision) change(file string, known bool, recorded placement) Change {
	switch now := d.dir.regular(file); {
	case !known && len(d.claim.places) == 0:
		return Change{Cause: Fresh, File: file}
	case !known:
		return d.moved(file)
	case now == nil:
		return d.gone(file)
	case recorded.Entry != digest(d.want.Plugin.Body):
		return Change{Cause: Updated, File: file}
	case recorded.Mode.orSplice() == Splice && !now.hasEntry(d.want.Plugin.Type):
		owner := d.owner(file)
		return Change{Overwritten, file, Culprit{owner, fmt.Sprintf("%s was written without the entry, and %s is its first plugin", file, owner)}}
	}
	return Change{Tampered, file, Culprit{unknown, d.tampering(file)}}
}

func (d *decision) tampering(file string) string {
	typ := d.want.Plugin.Type
	if first := d.owner(file); first != unknown && d.types(file)[0] == typ {
		return "the entry of " + typ + " was put before that of " + first + ", which makes the interface"
	}
	return "the entry of " + typ + " is another one: perhaps a second installer of it"
}

const unknown = "unknown"

func (d *decision) moved(file string) Change {
	for _, p := range d.claim.places {
		if p.Mode.orSplice() != d.plan.Mode {
			return Change{Cause: Updated, File: file}
		}
		if _, there := d.dir[p.Link]; p.Link != "" && !there {
			return d.gone(p.Link)
		}
		if d.dir.regular(p.File) == nil {
			return d.gone(p.File)
		}
	}
	if d.plan.Mode != Splice {
		return Change{Cause: Updated, File: file}
	}
	owner, taken := d.owner(file), file
	if name := d.plan.Primary; d.dir.isLink(name) {
		taken += ", to which " + name + " leads,"
	}
	return Change{Preempted, file, Culprit{owner, fmt.Sprintf("%s is what a runtime takes now, and %s is its first plugin", taken, owner)}}
}

func (d *decision) gone(file string) Change {
	if backup := file + backupSuffix; d.dir.content(backup) != nil {
		return Change{RenamedAway, file, Culprit{"cilium", "it is called " + backup + " now: set Cilium's cni.exclusive to false"}}
	}
	return Change{Removed, file, Culprit{unknown, "it is gone"}}
}

// owner names the program that maintains a file, by the first plugin in it that is not ours.
func (d *decision) owner(file string) string {
	for _, typ := range d.types(file) {
		if typ != d.want.Plugin.Type {
			return typ
		}
	}
	return unknown
}

// types returns the plugins in a file, or nil if no runtime loads it.
func (d *decision) types(file string) []string {
	f := d.dir.regular(file)
	if f == nil {
		return nil
	}
	list := path.Ext(file) == listExtension || d.dir.isLink(d.plan.Primary) && d.dir.target(d.plan.Primary) == file
	network, err := conflist.LoadNetwork(f.Data, list)
	if err != nil {
		return nil
	}
	return network.Types
}

func waiting(format string, arguments ...any) error {
	return fmt.Errorf("%w "+format, append([]any{ErrWaiting}, arguments...)...)
}

func refused(format string, arguments ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrRefused}, arguments...)...)
}
