// SPDX-License-Identifier: Apache-2.0

package filesystemtest

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/internal/filesystem"
)

// maxMixed is the number of changes up to which all combinations are tried. Beyond it those are
// tried that lack one change, have only one, or end early.
const maxMixed = 6

// PowerCuts returns all trees that a power cut now could leave, each once; one if all is durable.
func (d *Disk) PowerCuts() []Tree {
	d.mu.Lock()
	defer d.mu.Unlock()
	var trees []Tree
	for _, reached := range mixtures(len(d.pending)) {
		names := maps.Clone(d.durable)
		for i, c := range d.pending {
			if reached[i] {
				c.apply(names)
			}
		}
		for _, of := range []func(*inode) File{latest, synced, half, zeros} {
			tree := contents(names, of)
			if !slices.ContainsFunc(trees, func(known Tree) bool { return maps.Equal(known, tree) }) {
				trees = append(trees, tree)
			}
		}
	}
	return trees
}

// Tree returns what is visible as long as the power is on.
func (d *Disk) Tree() Tree {
	d.mu.Lock()
	defer d.mu.Unlock()
	return contents(d.names, latest)
}

// mixtures returns the combinations of n changes that may have reached the disk.
func mixtures(n int) [][]bool {
	var all [][]bool
	add := func(reached func(i int) bool) {
		mixture := make([]bool, n)
		for i := range mixture {
			mixture[i] = reached(i)
		}
		all = append(all, mixture)
	}
	if n <= maxMixed {
		for bits := range 1 << n {
			add(func(i int) bool { return bits&(1<<i) != 0 })
		}
		return all
	}
	for k := range n + 1 {
		add(func(i int) bool { return i < k })
		add(func(i int) bool { return i != k })
		add(func(i int) bool { return i == k })
	}
	return all
}

// contents returns the tree of these names, without those in missing directories.
func contents(names map[string]*inode, of func(*inode) File) Tree {
	tree := Tree{}
	for name, file := range names {
		there := true
		for parent := filepath.Dir(name); parent != "."; parent = filepath.Dir(parent) {
			there = there && names[parent] != nil
		}
		if there {
			tree[name] = of(file)
		}
	}
	return tree
}

func latest(file *inode) File { return file.latest }

// synced is the durable content, empty for a file that was never synced.
func synced(file *inode) File { return file.synced }

// half is the first part of what was written.
func half(file *inode) File {
	f := file.latest
	if file.dirty {
		f.Content = f.Content[:len(f.Content)/2]
	}
	return f
}

// zeros is a file with durable length, but without its blocks.
func zeros(file *inode) File {
	f := file.latest
	if file.dirty {
		f.Content = strings.Repeat("\x00", len(f.Content))
	}
	return f
}

// Crashes end a deed at its calls, and continue from each different tree that is left: by a killed
// process, and by a power cut at that moment. Only one goroutine may use them.
type Crashes struct {
	// Root is the directory below which the deed works.
	Root string
	// Deed works on a disk that holds Root, and passes its calls to the observer. Its outcome is
	// ignored when it is ended.
	Deed func(where string, o filesystem.Observer, on *Disk)
	// GoOn receives what is left, and where the deed was ended. After a kill the disk has the tree,
	// not yet entirely durable; after a power cut it is nil, and the tree is durable. [Tree.Put]
	// takes both.
	GoOn func(where string, left Tree, on *Disk)
	// Same removes from a tree what differs between processes; equal trees are tried once.
	Same func(Tree) Tree
	// Volatile, unless it is nil, reports whether a file is on a tmpfs, and so lost in a power cut.
	Volatile func(name string) bool

	seen map[string]bool
}

// EndBefore puts the tree into Root, and ends the deed before one of its calls, counted from 1.
func (c *Crashes) EndBefore(call int, from Tree) error {
	disk, err := from.Put(c.Root, nil)
	if err != nil {
		return err
	}
	fault := &Fault{Kind: Stopped, At: call, Next: disk}
	where := fmt.Sprintf("stopped before call %d", call)
	c.Deed(where, fault, disk)
	where += fmt.Sprintf(" (%v %s)", fault.Hit().Operation, filepath.Base(fault.Hit().Path))
	left, err := Read(c.Root)
	if err != nil {
		return err
	}
	c.goOn(where, left, disk)
	for i, cut := range disk.PowerCuts() {
		if c.Volatile != nil {
			maps.DeleteFunc(cut, func(name string, _ File) bool { return c.Volatile(name) })
		}
		c.goOn(fmt.Sprintf("%s, power cut %d", where, i), cut, nil)
	}
	return nil
}

// Different returns the number of different trees so far.
func (c *Crashes) Different() int { return len(c.seen) }

func (c *Crashes) goOn(where string, left Tree, on *Disk) {
	key := fmt.Sprint(c.Same(left))
	if on != nil {
		key += fmt.Sprint(" and ", len(on.PowerCuts()), " after a power cut")
	}
	if c.seen[key] {
		return
	}
	if c.seen == nil {
		c.seen = map[string]bool{}
	}
	c.seen[key] = true
	c.GoOn(where, left, on)
}
