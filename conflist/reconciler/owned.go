// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/conflist"
)

// owned decides that a list of our own sorts first: a copy of what the runtime would otherwise use,
// with our entry.
func (d *decision) owned() error {
	name := d.want.ownFile(Owned)
	if err := d.mayBeOurs(name); err != nil {
		return err
	}
	if _, known := d.claim.place(name); known && d.dir.regular(name).hasEntry(d.want.Plugin.Type) {
		// An agent that rewrites its file removes it for a moment; pods keep their network
		// meanwhile.
		d.plan.File = name
	}
	source, doc, err := d.chainTo(d.source(name))
	if err != nil {
		return err
	}
	edit, err := conflist.Insert(doc, d.want.Plugin)
	if err != nil {
		return refused("copy %s: %w", source, err)
	}
	place := d.ownPlace(name, doc)
	out, err := d.withOthers(&place, doc, edit.Out)
	if err != nil {
		return refused("copy %s: %w", source, err)
	}
	d.plan.Status = d.status(out)
	d.keep(place, out)
	return d.outranked(name)
}

// source finds the file to copy: the first that a runtime would load after ours.
func (d *decision) source(own string) (string, error) {
	name, err := d.target(func(name string) bool {
		return name != own && d.others(name) && (name > own || strings.Contains(name, "/"))
	})
	if first := d.earlier(own); first != "" && errors.Is(err, conflist.ErrNoPrimary) {
		return "", waiting("for a configuration that sorts after our own %s: there is only %s, which sorts before it, so that a runtime "+
			"never takes ours; give ours a name that sorts first", own, first)
	}
	return name, err
}

// earlier returns the file that a runtime takes because it sorts before our list, or nothing.
func (d *decision) earlier(own string) string {
	first, err := d.dir.primary(func(name string) bool { return name != own && d.others(name) })
	if err != nil || first > own {
		return ""
	}
	return first
}

// outranked returns an error while a runtime takes another list than ours that lacks our entry. It
// may be the copy of another mesh's installer, which is about to copy ours.
func (d *decision) outranked(own string) error {
	first := d.earlier(own)
	if first == "" || d.dir.content(first).hasEntry(d.want.Plugin.Type) {
		return nil
	}
	return waiting("for %s to have the plugin, too: it sorts before our own %s, so that a runtime never takes ours; give ours a name "+
		"that sorts first", first, own)
}

// withOthers adds to ours, the source with our entry, the entries that other programs have put into
// our own list. If the list differs from that only in layout, it stays unchanged.
func (d *decision) withOthers(place *placement, source, ours []byte) ([]byte, error) {
	existing := d.dir.regular(place.File)
	entries := d.foreign(place.File, source)
	out := ours
	bare := []byte(nil)
	if existing != nil {
		bare = existing.Data
	}
	place.Kept = nil
	for _, entry := range entries {
		place.Kept = append(place.Kept, entry.Type)
		edit, err := conflist.Insert(out, entry)
		if err != nil {
			return nil, err
		}
		out = edit.Out
		without, err := conflist.Remove(bare, entry.Type)
		if err != nil {
			return nil, err
		}
		bare = without.Out
	}
	if len(entries) > 0 && bytes.Equal(bare, ours) {
		return existing.Data, nil
	}
	return out, nil
}

// foreign returns the entries that other programs have added to a list of our own: those that were
// not copied. If the source has changed at the same time, its earlier content is unknown, and only
// the entries that the claim knows count.
func (d *decision) foreign(file string, source []byte) []conflist.Plugin {
	place, known := d.claim.place(file)
	existing := d.dir.regular(file)
	if !known || existing == nil {
		return nil
	}
	network, err := conflist.LoadNetwork(existing.Data, true)
	if err != nil {
		return nil
	}
	types := network.Types
	if place.Original != digest(source) {
		types = slices.DeleteFunc(types, func(typ string) bool { return !slices.Contains(place.Kept, typ) })
	}
	var entries []conflist.Plugin
	for i, typ := range types {
		_, copied, err := conflist.Find(source, typ)
		if err != nil || copied || typ == d.want.Plugin.Type || slices.Contains(types[:i], typ) {
			continue
		}
		if entry, found, err := conflist.Find(existing.Data, typ); err == nil && found {
			entries = append(entries, entry)
		}
	}
	return entries
}

// giveBack moves the entries of other programs from a list of our own that is to be removed to the
// list that a runtime takes next, so that their plugins are not missing until those programs
// notice. It reports whether our list may go now: not while another step writes to that file.
func (d *decision) giveBack(p placement) bool {
	name, err := d.source(p.File)
	if err != nil {
		return true // no list could take them
	}
	f := d.dir.content(name)
	if f == nil {
		return true
	}
	entries := d.foreign(p.File, f.Data)
	if len(entries) == 0 {
		return true
	}
	if slices.ContainsFunc(d.plan.steps, func(s step) bool { return s.file == name }) {
		return false
	}
	out := f.Data
	for _, entry := range entries {
		edit, err := conflist.Insert(out, entry)
		if err != nil || edit.Lifted || f.Target != "" {
			d.plan.Notes = append(d.plan.Notes, "the entry of "+entry.Type+" was put into "+p.File+", which goes, and can't be put into "+name)
			return true
		}
		out = edit.Out
	}
	d.step(step{op: opWrite, file: name, data: out, expect: f.Data, like: name, why: "with what others have put into " + p.File})
	return true
}
