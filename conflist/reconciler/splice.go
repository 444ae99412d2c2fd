// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/conflist"
)

// splice decides that the entry stands in the primary configuration itself.
func (d *decision) splice() error {
	name, doc, err := d.chainTo(d.target(d.others))
	if err != nil {
		return err
	}
	edit, err := conflist.Insert(doc, d.want.Plugin)
	if err != nil {
		return refused("add the plugin to %s: %w", name, err)
	}
	without, err := conflist.Remove(edit.Out, d.want.Plugin.Type)
	if err != nil {
		return refused("add the plugin to %s: %w", name, err)
	}
	d.plan.Status = d.status(edit.Out)
	place := placement{File: name, Entry: digest(d.want.Plugin.Body), Original: digest(without.Out)}
	if edit.Lifted {
		if err := d.lift(place, doc, edit.Out); err != nil {
			return err
		}
	} else {
		d.put(place, doc, edit)
	}
	return d.preempted()
}

// put writes a list with the entry in it.
func (d *decision) put(place placement, doc []byte, edit conflist.Edit) {
	old, known := d.claim.place(place.File)
	if known && old.Lifted != nil { // what it was made from counts, whatever became of the list since
		place.Original, place.Lifted = old.Original, old.Lifted
	}
	if edit.Changed {
		change := d.change(place.File, known, old)
		d.plan.Change = &change
		d.step(Step{Op: OpWrite, File: place.File, data: edit.Out, expect: doc, like: place.File})
	}
	d.record(place)
	d.plan.File = place.File
}

// lift writes the list that takes the place of a single configuration, and removes that. Until it is gone the runtime uses it, because it
// sorts first; from then on it uses the list. Its content goes into the claim before anything else happens.
func (d *decision) lift(place placement, doc, out []byte) error {
	single := place.File
	place.File = strings.TrimSuffix(single, path.Ext(single)) + listExtension
	place.Lifted = &lifted{Name: single, Content: doc}
	old, known := d.claim.place(place.File)
	var expect []byte
	if existing, there := d.dir[place.File]; there {
		if _, err := d.document(place.File); err != nil {
			return err
		}
		if (!known || old.Lifted == nil) && !bytes.Equal(existing.Data, out) {
			return refused("%s is a single configuration and would become %s, which exists and is somebody else's: remove the one that isn't in use",
				single, place.File)
		}
		expect = existing.Data
	}
	change := d.change(place.File, known, old)
	if known && expect != nil {
		owner := d.owner(single)
		change = Change{Preempted, single, Culprit{owner, single + " is there again, and sorts before " + place.File}}
	}
	d.plan.Change = &change
	if expect != nil && !bytes.Equal(expect, out) && single < place.File {
		// It goes before the claim forgets what it was made of: the runtime uses the single one, as it is there again.
		d.step(Step{Op: OpRemove, File: place.File, expect: expect, Why: "it was made of an earlier " + single})
		expect = nil
	}
	d.record(place)
	if !bytes.Equal(expect, out) {
		d.step(Step{Op: OpWrite, File: place.File, data: out, expect: expect, like: single, Why: single + " becomes a list"})
	}
	d.step(Step{Op: OpRemove, File: single, expect: doc, Why: place.File + " takes its place"})
	d.plan.File = place.File
	return nil
}

// preempted is an error when the runtime takes another file than the one that is asked for, and so never calls the plugin.
func (d *decision) preempted() error {
	if d.want.Primary == "" || d.want.ByName {
		return nil
	}
	lifted := d.plan.Primary // goes, if it isn't the list
	first, err := d.dir.primary(func(name string) bool { return d.others(name) && (name == d.plan.File || name != lifted) })
	if err != nil || first >= d.plan.File {
		return nil //nolint:nilerr // what can't be judged isn't taken before ours by anybody
	}
	return waiting("for %s to go: it sorts before %s, which is to be the primary configuration, and a runtime that takes the first file never "+
		"calls the plugin; remove it, or make it the primary", first, d.plan.File)
}

// undoSplice takes the entry out of a list. A list that was made of a single configuration goes, and the original comes back, unless somebody
// has changed the list: then it stays, without us.
func (d *decision) undoSplice(p placement) error {
	typ := d.want.Plugin.Type
	if _, there := d.dir[p.File]; !there {
		return nil // whoever removed it has taken our entry with it
	}
	if f := d.dir.regular(p.File); p.Lifted == nil && f != nil && !f.has(typ) {
		return nil // whatever stands there now, it doesn't name us
	}
	doc, err := d.document(p.File)
	if err != nil {
		return err
	}
	edit, err := conflist.Remove(doc, typ)
	if err != nil {
		return refused("take the plugin out of %s: %w", p.File, err)
	}
	if p.Lifted != nil && digest(edit.Out) == p.Original {
		if _, back := d.dir[p.Lifted.Name]; !back {
			d.step(Step{Op: OpWrite, File: p.Lifted.Name, data: p.Lifted.Content, like: p.File, Why: "as it was before it became a list"})
		}
		d.step(Step{Op: OpRemove, File: p.File, expect: doc, Why: "it was made of " + p.Lifted.Name})
		return nil
	}
	if edit.Changed {
		d.step(Step{Op: OpWrite, File: p.File, data: edit.Out, expect: doc, like: p.File, Why: "without the plugin"})
	}
	if p.Lifted != nil {
		d.plan.Notes = append(d.plan.Notes, p.File+" was made of "+p.Lifted.Name+" and stays, because somebody has changed it since")
	}
	return nil
}

// cleanBackup takes the entry out of what an agent has made of a list by renaming it: it would come back some day, and name a plugin that is
// gone.
func (d *decision) cleanBackup(backup string) {
	f := d.dir.regular(backup)
	if !f.hasEntry(d.want.Plugin.Type) {
		return
	}
	edit, err := conflist.Remove(f.Data, d.want.Plugin.Type)
	if err != nil || !edit.Changed {
		d.plan.Notes = append(d.plan.Notes, backup+" names the plugin, and can't be corrected: remove it")
		return
	}
	if !slices.ContainsFunc(d.plan.Steps, func(s Step) bool { return s.File == backup }) {
		d.step(Step{Op: OpWrite, File: backup, data: edit.Out, expect: f.Data, like: backup, Why: "it may come back, without the plugin"})
	}
}
