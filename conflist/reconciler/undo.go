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

// DecideRemoval says what has to be done so that a directory is what it was before the plugin was put there, byte for byte, as far as nobody
// else has changed it since: first what the claim knows of, then every other list that names the plugin. What can't be undone is in the
// plan's error, and keeps nothing else from being undone.
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

// unloadable reports whether a file of our own is what no runtime loads: somebody has broken it, and nobody will miss it.
func (f *File) unloadable(p placement) bool {
	if f == nil {
		return false
	}
	_, err := conflist.LoadNetwork(f.Data, path.Ext(p.File) == listExtension)
	return err != nil
}

// undo takes the plugin out of a recorded place, and then forgets it.
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
			d.plan.Notes = append(d.plan.Notes, p.File+" was our own and stays: somebody has taken the plugin out of it")
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

// leaveDirectory removes the network's directory, if it was made for a drop-in, and tells the runtime.
func (d *decision) leaveDirectory(p placement) {
	if p.Mode != DropIn {
		return
	}
	if _, there := d.dir[path.Dir(p.File)]; there && p.MadeDirectory {
		d.step(step{op: opRemoveDirectory, file: path.Dir(p.File)})
	}
	d.step(step{op: opNudge})
}

// removeUnrecorded takes the plugin out of a file that no claim knows. Files that can't be read as configurations are none of our business, as
// long as our name isn't in them.
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
