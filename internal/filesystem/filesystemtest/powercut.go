// SPDX-License-Identifier: Apache-2.0

package filesystemtest

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
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
