// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/conflist"
)

// splice decides that the entry goes into the primary configuration, or into a link's target.
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
	place := placement{File: d.dir.target(name), Entry: digest(d.want.Plugin.Body), Original: digest(without.Out)}
	if d.dir.isLink(name) {
		place.Link = name
	}
	if !edit.Lifted {
		d.put(place, doc, edit)
		return d.preempted(name)
	}
	if place.Link != "" {
		return refused("%s is a symbolic link to a single configuration, which would have to become a list of another name: "+
			"put a .conflist in its place, or choose mode owned", name)
	}
	if err := d.lift(place, doc, edit.Out); err != nil {
		return err
	}
	return d.preempted(d.plan.File)
}

// put writes a list with the entry in it. The target of a link is recorded in the claim first:
// nothing else would find it after the link leads elsewhere.
func (d *decision) put(place placement, doc []byte, edit conflist.Edit) {
	old, known := d.claim.place(place.File)
	if known && old.Lifted != nil { // the first original counts
		place.Original, place.Lifted = old.Original, old.Lifted
	}
	if edit.Changed {
		change := d.change(place.File, known, old)
		d.plan.Change = &change
	}
	if place.Link != "" {
		d.record(place)
	}
	if edit.Changed {
		d.rewrite(step{file: place.File, data: edit.Out, expect: doc, link: place.Link})
	}
	if place.Link == "" {
		d.record(place)
	}
	d.plan.File = place.File
}

// rewrite adds a step that replaces another program's file, and notifies a runtime that watches
// only the directory above it.
func (d *decision) rewrite(s step) {
	s.op, s.like = opWrite, s.file
	d.step(s)
	if path.Dir(s.file) != "." {
		d.step(step{op: opNudge})
	}
}

// lift writes the list that replaces a single configuration, and removes the latter. Until then the
// runtime uses the single configuration, because it sorts first; from then on it uses the list. The
// claim receives the single configuration's content before anything else happens.
func (d *decision) lift(place placement, doc, out []byte) error {
	single := place.File
	place.File = strings.TrimSuffix(single, path.Ext(single)) + listExtension
	place.Lifted = &lifted{Name: single, Content: doc}
	old, known := d.claim.place(place.File)
	expect, err := d.inPlaceOf(single, place.File, out)
	if err != nil {
		return err
	}
	change := d.change(place.File, known, old)
	if known && expect != nil {
		owner := d.owner(single)
		change = Change{Preempted, single, Culprit{owner, single + " is there again, and sorts before " + place.File}}
	}
	d.plan.Change = &change
	if expect != nil && !bytes.Equal(expect, out) && single < place.File {
		// Remove the list before the claim forgets its original: the runtime uses the single
		// configuration, which exists again.
		d.step(step{op: opRemove, file: place.File, expect: expect, why: "it was made of an earlier " + single})
		expect = nil
	}
	d.record(place)
	if !bytes.Equal(expect, out) {
		d.step(step{op: opWrite, file: place.File, data: out, expect: expect, like: single, why: single + " becomes a list"})
	}
	d.step(step{op: opRemove, file: single, expect: doc, why: place.File + " takes its place"})
	d.plan.File = place.File
	return nil
}

// inPlaceOf returns the file in the place of the list that a single configuration becomes, or nil
// if none exists. It must be ours.
func (d *decision) inPlaceOf(single, list string, out []byte) ([]byte, error) {
	existing, there := d.dir[list]
	if !there {
		return nil, nil
	}
	if _, err := d.document(list); err != nil {
		return nil, err
	}
	if old, _ := d.claim.place(list); d.dir.isLink(list) || old.Lifted == nil && !bytes.Equal(existing.Data, out) {
		return nil, refused("%s is a single configuration and would become %s, which exists and belongs to another program: "+
			"remove the one that isn't in use",
			single, list)
	}
	return existing.Data, nil
}

// preempted returns an error if the runtime takes another file than the wanted one, which is called
// taken after all steps, and so never calls the plugin.
func (d *decision) preempted(taken string) error {
	if d.want.Primary == "" || d.want.ByName {
		return nil
	}
	goes := d.plan.Primary // if it becomes a list
	first, err := d.dir.primary(func(name string) bool { return d.others(name) && (name == taken || name != goes) })
	if err != nil || first >= taken {
		return nil //nolint:nilerr // runtimes take no other configuration
	}
	return waiting("for %s to go: it sorts before %s, which is to be the primary configuration, and a runtime that takes the first file never "+
		"calls the plugin; remove it, or make it the primary", first, taken)
}

// undoSplice removes the entry from a list. A list that was made of a single configuration is
// removed and the original is restored, unless another program has changed the list: then only the
// entry is removed.
func (d *decision) undoSplice(p placement) error {
	typ := d.want.Plugin.Type
	if d.isGone(p) {
		return nil // another program removed or rewrote it, and our entry with it
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
			d.step(step{op: opWrite, file: p.Lifted.Name, data: p.Lifted.Content, like: p.File, why: "as it was before it became a list"})
		}
		d.step(step{op: opRemove, file: p.File, expect: doc, why: "it was made of " + p.Lifted.Name})
		return nil
	}
	if edit.Changed {
		d.rewrite(step{file: p.File, data: edit.Out, expect: doc, why: "without the plugin"})
	}
	if p.Lifted != nil {
		d.plan.Notes = append(d.plan.Notes, p.File+" was made of "+p.Lifted.Name+" and stays, because another program has changed it since")
	}
	return nil
}

// isGone reports whether the splice is gone: no file, or one that no longer names the plugin.
func (d *decision) isGone(p placement) bool {
	if _, there := d.dir[p.File]; !there || d.dir.isLink(p.File) {
		return true
	}
	f := d.dir.regular(p.File)
	return p.Lifted == nil && f != nil && !f.has(d.want.Plugin.Type)
}

// cleanBackup removes the entry from the backup that an agent has made of a list by renaming it:
// the agent would restore it some day, and its plugin would be missing.
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
	if !slices.ContainsFunc(d.plan.steps, func(s step) bool { return s.file == backup }) {
		d.rewrite(step{file: backup, data: edit.Out, expect: f.Data, why: "it may come back, without the plugin"})
	}
}
