// SPDX-License-Identifier: Apache-2.0

package filesystemtest

import (
	"fmt"
	"maps"
	"path/filepath"

	"github.com/meshcni/meshcni/internal/filesystem"
)

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
