// SPDX-License-Identifier: Apache-2.0

package filesystemtest

import (
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/meshcni/meshcni/internal/filesystem"
)

// Disk records which part of a tree of files is durable. Create it with [NewDisk].
type Disk struct {
	root string

	mu      sync.Mutex
	names   map[string]*inode // as every program sees them
	durable map[string]*inode
	pending []change // in order; each of them may or may not have reached the disk
}

// inode is a file, a directory or a link, regardless of its names.
type inode struct {
	latest, synced File
	dirty          bool // latest is not synced
}

// change is what one call did to the names of a directory; all of it reaches the disk, or nothing.
type change struct {
	directory string
	names     map[string]*inode // nil for a removed name
}

// NewDisk returns a disk with the tree below root, all of it durable.
func NewDisk(root string) (*Disk, error) {
	tree, err := Read(root)
	if err != nil {
		return nil, err
	}
	d := &Disk{root: root, names: map[string]*inode{}}
	for name, file := range tree {
		d.names[name] = &inode{latest: file, synced: file}
	}
	d.durable = maps.Clone(d.names)
	return d, nil
}

// Clone returns an independent disk in the same state.
func (d *Disk) Clone() *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	copies := map[*inode]*inode{}
	clone := func(names map[string]*inode) map[string]*inode {
		cloned := map[string]*inode{}
		for name, file := range names {
			if file != nil && copies[file] == nil {
				c := *file
				copies[file] = &c
			}
			cloned[name] = copies[file]
		}
		return cloned
	}
	other := &Disk{root: d.root, names: clone(d.names), durable: clone(d.durable)}
	for _, c := range d.pending {
		other.pending = append(other.pending, change{c.directory, clone(c.names)})
	}
	return other
}

// Observe makes the call, and records it if it succeeds.
func (d *Disk) Observe(call filesystem.Call, do func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := do(); err != nil {
		return err
	}
	name := d.name(call.Path)
	switch call.Operation {
	case filesystem.Create:
		empty := File{Mode: call.Mode}
		d.rename(map[string]*inode{name: {latest: empty, synced: empty}})
	case filesystem.MakeDirectory:
		directory := File{Mode: call.Mode | dirMode}
		d.rename(map[string]*inode{name: {latest: directory, synced: directory}})
	case filesystem.Rename:
		d.rename(map[string]*inode{name: nil, d.name(call.To): d.names[name]})
	case filesystem.Remove:
		d.rename(map[string]*inode{name: nil})
	case filesystem.SyncDirectory:
		d.syncDirectory(name)
	case filesystem.Write:
		d.change(d.names[name], func(latest *File) { latest.Content += string(call.Data) })
	case filesystem.Chmod:
		d.change(d.names[name], func(latest *File) { latest.Mode = call.Mode })
	case filesystem.Sync:
		if file := d.names[name]; file != nil {
			file.synced, file.dirty = file.latest, false
		}
	case filesystem.Chown: // this disk has no owners
	}
	return nil
}

// change records a call that changes a file, but not its name. Files that the disk does not know
// are not in its tree.
func (d *Disk) change(file *inode, to func(latest *File)) {
	if file != nil {
		to(&file.latest)
		file.dirty = true
	}
}

func (d *Disk) name(path string) string {
	name, err := filepath.Rel(d.root, path)
	if err != nil {
		return path
	}
	return name
}

func (d *Disk) rename(names map[string]*inode) {
	c := change{names: names}
	for name, file := range names {
		c.directory = filepath.Dir(name)
		set(d.names, name, file)
	}
	d.pending = append(d.pending, c)
}

func set(names map[string]*inode, name string, file *inode) {
	if file == nil {
		delete(names, name)
		return
	}
	names[name] = file
}

func (c change) apply(names map[string]*inode) {
	for name, file := range c.names {
		set(names, name, file)
	}
}

func (d *Disk) syncDirectory(directory string) {
	d.pending = slices.DeleteFunc(d.pending, func(c change) bool {
		if c.directory == directory {
			c.apply(d.durable)
		}
		return c.directory == directory
	})
}
