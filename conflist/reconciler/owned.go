// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"strings"

	"github.com/meshcni/meshcni/conflist"
)

// owned decides that a list of our own sorts first: what the runtime would use without it, and our entry.
func (d *decision) owned() error {
	name := d.want.ownFile(Owned)
	if err := d.mayBeOurs(name); err != nil {
		return err
	}
	d.holdOn(name)
	source, doc, err := d.chainTo(d.source(name))
	if err != nil {
		return err
	}
	edit, err := conflist.Insert(doc, d.want.Plugin)
	if err != nil {
		return refused("copy %s: %w", source, err)
	}
	d.plan.Status = d.status(edit.Out)
	d.keep(d.ownPlace(name, doc), edit.Out)
	return nil
}

// holdOn keeps our list where it is while there is nothing to copy: an agent that writes its file anew leaves the node without one for a
// moment, and pods keep their network meanwhile.
func (d *decision) holdOn(name string) {
	if _, known := d.claim.place(name); known && d.dir.regular(name).hasEntry(d.want.Plugin.Type) {
		d.plan.File = name
	}
}

// source finds the file to copy: the first that a runtime would load behind ours. One that comes before ours is somebody's who wants to be
// first, or has our entry and is a copy like ours, of another mesh.
func (d *decision) source(own string) (string, error) {
	others := func(name string) bool { return name != own && d.others(name) }
	first, err := d.dir.primary(others)
	if err == nil && first < own && !d.dir.content(first).hasEntry(d.want.Plugin.Type) {
		return "", refused("%s sorts before our own %s, so that a runtime never takes ours: give ours a name that sorts first", first, own)
	}
	return d.target(func(name string) bool { return others(name) && (name > own || strings.Contains(name, "/")) })
}
