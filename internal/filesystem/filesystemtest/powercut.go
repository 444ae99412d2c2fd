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

// maxMixed is up to how many changes of names all mixtures are tried; beyond it those that lack one, have but one, or end early.
const maxMixed = 6

// PowerCuts returns all the trees that may be found if the power failed now, each once. There is one only when all is durable.
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

// Tree is what is to be seen as long as the power is on.
func (d *Disk) Tree() Tree {
	d.mu.Lock()
	defer d.mu.Unlock()
	return contents(d.names, latest)
}

// mixtures are which of n changes may have reached the disk.
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

// contents is the tree of these names, without those in directories that aren't there.
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

// synced is the empty file that was made where nothing ever was synced.
func synced(file *inode) File { return file.synced }

// half is what was written first.
func half(file *inode) File {
	f := file.latest
	if file.dirty {
		f.Content = f.Content[:len(f.Content)/2]
	}
	return f
}

// zeros is a file whose length is durable, and whose blocks aren't.
func zeros(file *inode) File {
	f := file.latest
	if file.dirty {
		f.Content = strings.Repeat("\x00", len(f.Content))
	}
	return f
}

// Crashes end a deed at its calls, and go on from each different thing that is left: what a killed process leaves, and what may be found
// when the power fails at that moment. They are used by one goroutine.
type Crashes struct {
	// Root is the directory that the deed works below.
	Root string
	// Deed is done on a disk that holds Root, and passes its calls to the observer. What it answers when it is ended, nobody hears.
	Deed func(where string, o filesystem.Observer, on *Disk)
	// GoOn is told what is left, and where the deed was ended. The disk doesn't hold all of it yet; behind a power cut it is nil, and
	// all is durable. [Tree.Put] takes both.
	GoOn func(where string, left Tree, on *Disk)
	// Same is a tree without what differs from one process to the next: it is gone on once from what leaves the same.
	Same func(Tree) Tree
	// Volatile, unless it is nil, says which files are on a tmpfs, and so gone behind a power cut.
	Volatile func(name string) bool

	seen map[string]bool
}

// EndBefore has Root hold the tree, and ends the deed before one of its calls, counted from 1.
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

// Different is from how many different things it was gone on.
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
