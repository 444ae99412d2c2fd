// SPDX-License-Identifier: Apache-2.0

package filesystemtest

import (
	"errors"
	"fmt"
	"sync"

	"github.com/meshcni/meshcni/internal/filesystem"
)

// ErrInjected is the error of failing calls.
var ErrInjected = errors.New("injected")

// Kind is how a call fails.
type Kind uint8

// The kinds.
const (
	// None makes all calls as usual.
	None Kind = iota
	// Refused makes the call fail without effect.
	Refused
	// Lost makes the call, and reports a failure.
	Lost
	// Skipped reports success without making the call, like a program that forgets the call.
	Skipped
	// Stopped ends the process before the call: it and all later calls fail without effect.
	Stopped
)

// Func is an observer that is a function.
type Func func(call filesystem.Call, do func() error) error

// Observe calls the function.
func (f Func) Observe(call filesystem.Call, do func() error) error { return f(call, do) }

// Fault makes one call fail, and counts all. The zero value only counts.
type Fault struct {
	// Kind is how the call fails, and At its number, counted from 1.
	Kind Kind
	At   int
	// Next observes the calls that are made; it may be nil.
	Next filesystem.Observer

	mu    sync.Mutex
	count int
	hit   filesystem.Call
}

// Observe counts the call, and makes it or makes it fail.
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

// Count returns the number of calls so far.
func (f *Fault) Count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count
}

// Hit returns the call that failed, or a zero operation if none has.
func (f *Fault) Hit() filesystem.Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hit
}

// WithoutSyncs shows the next observer syncs that are not made. A [Disk] does not need real ones,
// and tests with thousands of syncs run faster.
func WithoutSyncs(next filesystem.Observer) filesystem.Observer {
	return Func(func(call filesystem.Call, do func() error) error {
		if call.Operation == filesystem.Sync || call.Operation == filesystem.SyncDirectory {
			do = func() error { return nil }
		}
		return next.Observe(call, do)
	})
}
