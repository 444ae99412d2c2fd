// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/meshcni/meshcni/conflist"
	"github.com/meshcni/meshcni/internal/filesystem"
)

// settleTime is how long a file that ends too early counts as half-written, and not as broken.
const settleTime = time.Second

// Decide returns the plan that turns a directory into what is wanted. It is a pure function of the
// directory's content, of the claim, and of the time, which distinguishes a half-written file from
// a broken one. Our files and entries elsewhere are removed only after the plugin is in its place,
// so that the plugin is never missing.
func Decide(dir Snapshot, claim Claim, want Want, now time.Time) Plan {
	d := &decision{dir: dir, claim: claim, want: want, now: now, plan: Plan{Through: dir.through()}}
	if err := errors.Join(want.Validate(), claim.validate()); err != nil {
		return Plan{Err: err}
	}
	d.choose()
	if d.plan.Err == nil {
		d.plan.Err = d.follow()
	}
	if d.plan.File != "" {
		d.leaveOthers()
	}
	return d.plan
}

type decision struct {
	dir   Snapshot
	claim Claim
	want  Want
	now   time.Time
	plan  Plan
	owns  bool // a file with the name of our own list and with our entry is our own
}

func (d *decision) follow() error {
	switch d.plan.Mode {
	case Owned:
		return d.owned()
	case DropIn:
		return d.dropIn()
	case Standalone:
		return d.standalone()
	case Splice, Auto:
	}
	return d.splice()
}

func (d *decision) step(s step) { d.plan.steps = append(d.plan.steps, s) }

func (d *decision) record(place placement) {
	if place.Mode == Splice {
		place.Mode = ""
	}
	if old, ok := d.claim.place(place.File); !ok || !reflect.DeepEqual(old, place) {
		d.step(step{op: opRecord, file: place.File, place: place})
	}
}

// others reports whether a file is not wholly our own. Our own files do not show which network a
// node would have without us, and a broken one must not hide it.
func (d *decision) others(name string) bool {
	if p, ok := d.claim.place(name); ok && p.Mode.orSplice() != Splice {
		return false
	}
	ours := name == d.want.ownFile(Owned) && d.owns
	return !ours || !d.dir.regular(name).hasEntry(d.want.Plugin.Type)
}

// target finds the file to chain to: the one in Want.Primary, or the first that a runtime loads.
func (d *decision) target(consider func(name string) bool) (string, error) {
	if d.want.Primary != "" {
		name, found := d.named()
		if !found {
			return "", waiting("for %s, which is to be the primary configuration", d.want.Primary)
		}
		if d.isHalfWritten(name) {
			return "", unfinished(name)
		}
		return name, nil
	}
	name, err := d.dir.primary(consider)
	if halfWritten := d.halfWritten(name, consider); halfWritten != "" {
		return "", unfinished(halfWritten)
	}
	switch {
	case errors.Is(err, conflist.ErrNoPrimary):
		return "", waiting("for the cluster's network plugin: %w", err)
	case err != nil:
		return "", refused("look for the primary configuration: %w", err)
	}
	return d.unlifted(name), nil
}

// unlifted returns the single configuration that a list was made of, if it exists again: its owner
// has changed it, even if the list sorts first.
func (d *decision) unlifted(list string) string {
	place, ok := d.claim.place(list)
	if !ok || place.Lifted == nil {
		return list
	}
	if f := d.dir.regular(place.Lifted.Name); f != nil {
		if _, err := conflist.LoadNetwork(f.Data, false); err == nil {
			return place.Lifted.Name
		}
	}
	return list
}

// named finds the file that the caller names, even if it was lifted to a list since, or is a single
// configuration again. A single configuration beside the list that we made of it comes first, as it
// does for the runtime.
func (d *decision) named() (name string, found bool) {
	stem := strings.TrimSuffix(d.want.Primary, path.Ext(d.want.Primary))
	candidates := []string{d.want.Primary, stem + ".conf", stem + ".json", stem + listExtension}
	if place, ok := d.claim.place(d.want.Primary); ok && place.Lifted != nil {
		candidates = append([]string{place.Lifted.Name}, candidates...)
	}
	for _, candidate := range candidates {
		if _, ok := d.dir[candidate]; ok {
			return candidate, true
		}
	}
	return "", false
}

// halfWritten returns a half-written file that sorts before the found one: a runtime will take it
// when it is complete.
func (d *decision) halfWritten(found string, consider func(name string) bool) string {
	for _, name := range d.dir.names() {
		if !relevant(name) || isBackup(name) || !consider(name) || (found != "" && name >= found) {
			continue
		}
		if d.isHalfWritten(name) {
			return name
		}
	}
	return ""
}

// isHalfWritten reports whether a file was written a moment ago and ends too early: a program is
// still writing it. Plan.Again is set to the time at which it counts as broken.
func (d *decision) isHalfWritten(name string) bool {
	f := d.dir.content(name)
	if f == nil || !endsEarly(f.Data) {
		return false
	}
	until := f.Time.Add(settleTime)
	if !until.After(d.now) {
		return false
	}
	d.plan.Again = until
	return true
}

func unfinished(name string) error { return waiting("for another program to finish writing %s", name) }

// endsEarly reports whether more bytes could make a document a configuration.
func endsEarly(doc []byte) bool {
	var whole json.RawMessage
	err := json.NewDecoder(bytes.NewReader(doc)).Decode(&whole)
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// document returns the content of a file, or of a link's target, that is to be written, or copied.
func (d *decision) document(name string) ([]byte, error) {
	f, ok := d.dir[name]
	switch {
	case !ok:
		return nil, waiting("for %s to be there again", name)
	case errors.Is(f.Err, filesystem.ErrNowhere):
		return nil, waiting("for what %s leads to: %w", name, f.Err)
	case f.Err != nil:
		return nil, refused("%s: %w", name, f.Err)
	case d.dir.content(name) == nil:
		return nil, refused("%s is not a regular file: replace it by one", name)
	}
	return f.Data, nil
}

// chainTo records the file that was found as the one to chain to, and returns its document.
func (d *decision) chainTo(found string, err error) (name string, doc []byte, _ error) {
	if err != nil {
		return "", nil, err
	}
	d.plan.Primary = found
	doc, err = d.chainable(found)
	return found, doc, err
}

// chainable returns the document of a network to chain to, and refuses one that has only our
// plugin. The plugins of the network's directory run after all those in the list, so that only a
// drop-in can run after them.
func (d *decision) chainable(name string) ([]byte, error) {
	doc, err := d.document(name)
	if err != nil || path.Ext(name) != listExtension {
		return doc, err
	}
	without, err := conflist.Remove(doc, d.want.Plugin.Type)
	switch {
	case errors.Is(err, conflist.ErrNoPlugins):
		without.Out = doc
	case err != nil:
		return doc, nil //nolint:nilerr // writing the entry reports what is wrong
	}
	network, err := conflist.LoadNetwork(without.Out, true)
	if err == nil && len(network.Types) > 0 {
		return doc, nil
	}
	switch first := d.firstDropIn(network); {
	case err != nil || first == "":
		return nil, waiting("for the network's own plugins: %s has none, and our plugin alone makes no network", name)
	case d.plan.Mode != DropIn:
		return nil, refused("the plugins of %s are all in the directory %s, and run after the list's: choose mode dropin", name, network.Name)
	case first > d.want.ownFile(DropIn):
		return nil, refused("%s would run before %s/%s, which makes the interface: have the other one sort first",
			d.want.ownFile(DropIn), network.Name, first)
	}
	return doc, nil
}

// firstDropIn returns the name of the first file in a network's directory, in the order in which
// they run, that has another program's plugin; empty if there is none.
func (d *decision) firstDropIn(network conflist.Network) string {
	if !network.DropIns() {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(d.dir)) {
		if f := d.dir.content(name); path.Dir(name) == network.Name && path.Ext(name) == ".conf" && f != nil && !f.has(d.want.Plugin.Type) {
			return path.Base(name)
		}
	}
	return ""
}

// mayBeOurs refuses a file in the place of ours that is not in the claim and lacks our entry.
func (d *decision) mayBeOurs(name string) error {
	f, there := d.dir[name]
	if !there {
		return nil
	}
	if d.dir.isLink(name) {
		return refused("%s is a symbolic link in the place of a file of our own: remove it", name)
	}
	if f.Err != nil || !f.Mode.IsRegular() {
		_, err := d.document(name)
		return err
	}
	if _, recorded := d.claim.place(name); !recorded && !(&f).hasEntry(d.want.Plugin.Type) {
		return refused("%s belongs to another program: remove it, or choose another name for our file", name)
	}
	return nil
}

// keep adds the steps that give a file of our own its content, mode and owner, and states the
// cause. A new file is recorded in the claim first, so that it counts as ours after a crash.
func (d *decision) keep(place placement, data []byte, before ...step) {
	_, known := d.claim.place(place.File)
	if !known {
		d.record(place)
	}
	f := d.dir.regular(place.File)
	if f == nil || !bytes.Equal(f.Data, data) || f.Mode.Perm() != d.want.perm() || f.Foreign {
		d.replace(place, f, data, before)
	}
	if known {
		d.record(place)
	}
	d.dropBackup(place.File)
	d.plan.File = place.File
}

func (d *decision) replace(place placement, f *File, data []byte, before []step) {
	old, known := d.claim.place(place.File)
	change := d.change(place.File, known, old)
	if known && f != nil && change.Hostile() && old.Original != place.Original {
		change = Change{Cause: Propagated, File: place.File}
	}
	d.plan.Change = &change
	d.plan.steps = append(d.plan.steps, before...)
	write := step{op: opWrite, file: place.File, data: data, mode: d.want.perm()}
	if f != nil {
		write.expect = f.Data
	}
	d.step(write)
	if place.Mode == DropIn {
		d.step(step{op: opNudge})
	}
}

// dropBackup removes the backup that an agent has made of a file of our own by renaming it: the
// agent would restore it some day, and its plugin would be missing.
func (d *decision) dropBackup(file string) {
	backup := file + backupSuffix
	if f := d.dir.regular(backup); f.hasEntry(d.want.Plugin.Type) {
		d.step(step{op: opRemove, file: backup, expect: f.Data, why: "it is our file under another name"})
	}
}

func (d *decision) ownPlace(file string, original []byte) placement {
	place := placement{File: file, Mode: d.plan.Mode, Entry: digest(d.want.Plugin.Body)}
	if original != nil {
		place.Original = digest(original)
	}
	old, recorded := d.claim.place(file)
	place.MadeDirectory = old.MadeDirectory
	if _, there := d.dir[file]; there && !recorded { // the claim was lost: the directory goes if it holds only our file
		place.MadeDirectory = d.plan.Mode == DropIn
	}
	return place
}

// leaveOthers removes the plugin from the places that are no longer wanted.
func (d *decision) leaveOthers() {
	for _, p := range d.claim.places {
		if p.File != d.plan.File {
			d.undo(p)
		}
	}
}

// standalone decides on a configuration of our own, for a meta plugin that calls it by name.
func (d *decision) standalone() error {
	name := d.want.ownFile(Standalone)
	if err := d.mayBeOurs(name); err != nil {
		return err
	}
	data, err := d.want.alone(true)
	if err != nil {
		return err
	}
	if first, err := d.dir.primary(func(other string) bool { return other != name && d.others(other) }); err != nil || first > name {
		d.plan.Notes = append(d.plan.Notes, "no other configuration sorts before "+name+
			": a container runtime that reads this directory would take the plugin alone for the node's network")
	}
	d.plan.Status = Status{Why: "a meta plugin calls the plugin, and asks none for its status"}
	d.keep(d.ownPlace(name, nil), data)
	return nil
}
