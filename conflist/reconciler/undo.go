// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"errors"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/meshcni/meshcni/conflist"
)

// DecideRemoval returns the plan that restores a directory to what it was before the plugin was
// installed, byte for byte except for later changes of other programs: first the places in the
// claim, then every other list that names the plugin. The plan's error has what cannot be undone;
// everything else is undone all the same.
func DecideRemoval(dir Snapshot, claim Claim, want Want, now time.Time) Plan {
	d := &decision{dir: dir, claim: claim, want: want, now: now}
	if err := errors.Join(want.Validate(), claim.validate()); err != nil {
		return Plan{Err: err}
	}
	for _, p := range claim.places {
		d.undo(p)
	}
	for _, name := range dir.files() {
		if _, recorded := claim.place(strings.TrimSuffix(name, backupSuffix)); !recorded {
			d.plan.Err = errors.Join(d.plan.Err, d.removeUnrecorded(name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(dir)) { // a drop-in of a lost claim
		_, recorded := claim.place(name)
		f := dir.regular(name)
		if path.Base(name) == want.ownFile(DropIn) && path.Dir(name) != "." && !recorded && f.hasEntry(want.Plugin.Type) {
			d.step(step{op: opRemove, file: name, expect: f.Data, why: "it is our own"})
			d.leaveDirectory(placement{File: name, Mode: DropIn, MadeDirectory: true})
		}
	}
	return d.plan
}

// unloadable reports whether our own file is broken, so that no runtime loads it.
func (f *File) unloadable(p placement) bool {
	if f == nil {
		return false
	}
	_, err := conflist.LoadNetwork(f.Data, path.Ext(p.File) == listExtension)
	return err != nil
}

// undo removes the plugin from a recorded place, and then the record.
func (d *decision) undo(p placement) {
	switch p.Mode.orSplice() {
	case Owned, Standalone, DropIn:
		f := d.dir.regular(p.File)
		if p.Mode == Owned && f.hasEntry(d.want.Plugin.Type) && !d.giveBack(p) {
			return
		}
		if f.hasEntry(d.want.Plugin.Type) || f.unloadable(p) {
			d.step(step{op: opRemove, file: p.File, expect: f.Data, why: "it is our own"})
		} else if f != nil {
			d.plan.Notes = append(d.plan.Notes, p.File+" was our own and stays: another program has taken the plugin out of it")
		}
		d.dropBackup(p.File)
		d.leaveDirectory(p)
	case Splice, Auto:
		if err := d.undoSplice(p); err != nil {
			d.plan.Err = errors.Join(d.plan.Err, err)
			return
		}
		d.cleanBackup(p.File + backupSuffix)
	}
	d.step(step{op: opForget, file: p.File})
}

// leaveDirectory removes a network's directory that was created for a drop-in, with a nudge.
func (d *decision) leaveDirectory(p placement) {
	if p.Mode != DropIn {
		return
	}
	if _, there := d.dir[path.Dir(p.File)]; there && p.MadeDirectory {
		d.step(step{op: opRemoveDirectory, file: path.Dir(p.File)})
	}
	d.step(step{op: opNudge})
}

// removeUnrecorded removes the plugin from a file that no claim records. Files that cannot be
// parsed do not matter unless they contain our name.
func (d *decision) removeUnrecorded(name string) error {
	typ := d.want.Plugin.Type
	f := d.dir.regular(name)
	if !f.has(typ) {
		return nil
	}
	if isBackup(name) {
		d.cleanBackup(name)
		return nil
	}
	ours := slices.Contains([]Mode{Owned, Auto, ""}, d.want.Mode) && name == d.want.ownFile(Owned) ||
		d.want.Mode == Standalone && name == d.want.ownFile(Standalone)
	if ours && f.hasEntry(typ) {
		d.step(step{op: opRemove, file: name, expect: f.Data, why: "it is our own"})
		return nil
	}
	edit, err := conflist.Remove(f.Data, typ)
	if errors.Is(err, conflist.ErrStandalone) {
		return refused("take the plugin out of %s: %w, if no other installation needs it", name, err)
	}
	if err != nil {
		return refused("take the plugin out of %s: %w", name, err)
	}
	if edit.Changed {
		d.rewrite(step{file: name, data: edit.Out, expect: f.Data, why: "without the plugin"})
	}
	return nil
}
