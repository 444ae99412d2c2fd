// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"fmt"
	"os"
	"sync/atomic"
)

// standIn is a handle without a namespace behind it.
type standIn struct {
	name   string
	closed atomic.Bool
}

// StandInNetns makes a handle that stands for a network namespace without there being one: for tests of code that uses a [Dataplane], on
// any system and without privileges. It has no descriptor, so that nothing can be entered or changed through it: [Netns.File] is nil,
// and a dataplane that works on a kernel refuses it with [ErrNotNetns]. Package dataplanetest/fake has a dataplane that takes it.
//
// Two handles with the same id stand for the same namespace. No file system has the device 0, so that an id without Device is never that
// of a real namespace. The name is for [Netns.String] alone.
func StandInNetns(name string, id NetnsID) *Netns {
	return &Netns{id: id, standIn: &standIn{name: name}}
}

// Check is nil as long as the handle can be used, and otherwise says why not: it is nil or was never opened ([ErrNotNetns]), or it has been
// closed (os.ErrClosed). A dataplane calls it before anything else. It says nothing about whether there is a namespace behind the handle:
// one that stands in for a namespace has no [Netns.File].
func (n *Netns) Check() error {
	switch {
	case n == nil || n.file == nil && n.standIn == nil:
		return fmt.Errorf("no network namespace was given: %w; open one with interception.OpenNetns", ErrNotNetns)
	case n.standIn != nil && n.standIn.closed.Load():
		return fmt.Errorf("%s: %w", n, os.ErrClosed)
	case n.standIn != nil:
		return nil
	}
	connection, err := n.file.SyscallConn()
	if err != nil || connection.Control(func(uintptr) {}) != nil { // a closed descriptor is lent to nobody
		return fmt.Errorf("%s: %w", n, os.ErrClosed)
	}
	return nil
}

// close is what [Netns.Close] does.
func (s *standIn) close() error {
	if s.closed.Swap(true) {
		return fmt.Errorf("close %s: %w", s.name, os.ErrClosed)
	}
	return nil
}
