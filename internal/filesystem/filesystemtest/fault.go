// SPDX-License-Identifier: Apache-2.0

package filesystemtest

import (
	"errors"
	"fmt"
	"sync"

	"github.com/meshcni/meshcni/internal/filesystem"
)

// ErrInjected is what calls fail with.
var ErrInjected = errors.New("injected")

// Kind is a way in which a call fails.
type Kind uint8

// The kinds.
const (
	// None lets all calls be.
	None Kind = iota
	// Refused has the call fail, with nothing done.
	Refused
	// Lost has it done, and its answer be a failure.
	Lost
	// Skipped has it succeed, with nothing done: what a program does that forgets the call.
	Skipped
	// Stopped has the process end before it: neither it nor any later call is done, and all of them fail.
	Stopped
)

// Func is an observer that is a function.
type Func func(call filesystem.Call, do func() error) error

// Observe calls the function.
func (f Func) Observe(call filesystem.Call, do func() error) error { return f(call, do) }

// Fault makes one call fail, and counts all. The zero value counts only.
type Fault struct {
	// Kind is how it fails, At which one, counted from 1.
	Kind Kind
	At   int
	// Next observes the calls that are made; nil for none.
	Next filesystem.Observer

	mu    sync.Mutex
	count int
	hit   filesystem.Call
}

// Observe counts the call, and makes it, or has it fail.
func (f *Fault) Observe(call filesystem.Call, do func() error) error {
	f.mu.Lock()
	f.count++
	kind := None
	switch {
	case f.Kind == None:
	case f.count == f.At:
		f.hit, kind = call, f.Kind
	case f.Kind == Stopped && f.count > f.At:
		kind = Stopped
	}
	f.mu.Unlock()
	switch kind {
	case Refused, Stopped:
		return fmt.Errorf("%v: %w", call.Operation, ErrInjected)
	case Lost:
		return errors.Join(f.pass(call, do), fmt.Errorf("%v: %w", call.Operation, ErrInjected))
	case Skipped:
		return nil
	case None:
	}
	return f.pass(call, do)
}

func (f *Fault) pass(call filesystem.Call, do func() error) error {
	if f.Next == nil {
		return do()
	}
	return f.Next.Observe(call, do)
}

// Count is how many calls there have been.
func (f *Fault) Count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count
}

// Hit is the call that failed; its operation is zero as long as there was none.
func (f *Fault) Hit() filesystem.Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hit
}

// WithoutSyncs has the next observer believe in syncs that aren't made, which a [Disk] needs none of: tests with thousands of them run faster.
func WithoutSyncs(next filesystem.Observer) filesystem.Observer {
	return Func(func(call filesystem.Call, do func() error) error {
		if call.Operation == filesystem.Sync || call.Operation == filesystem.SyncDirectory {
			do = func() error { return nil }
		}
		return next.Observe(call, do)
	})
}
