// SPDX-License-Identifier: Apache-2.0

package kerneltest

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/kernel"
)

// ErrInjected is what becomes of calls that fail without the kernel.
var ErrInjected = errors.New("injected")

// Kind is a way in which a call fails.
type Kind uint8

// The kinds.
const (
	// None lets all calls be.
	None Kind = iota
	// Unsent has the call fail, and the kernel hears nothing of it.
	Unsent
	// Refused has the kernel refuse a message.
	Refused
	// Lost has the kernel do it, and its answer get lost.
	Lost
)

// Fault makes one call fail, and counts all. The zero value counts only.
type Fault struct {
	// Kind is how it fails. Only datagrams and changes by the library can be refused or their answers be lost: other calls are then unsent.
	Kind Kind
	// At is which one, counted from 0.
	At int
	// Message is which message of it is refused, counted from 0.
	Message int
	// Forever has all behind it fail, too, as when the process ends there.
	Forever bool

	mu    sync.Mutex
	calls []Call
}

// Open is the namespace of an open descriptor, with the fault.
func (f *Fault) Open(in *os.File) kernel.Namespace { return f.In(kernel.Of(in)) }

// In is a namespace with the fault.
func (f *Fault) In(namespace kernel.Namespace) kernel.Namespace {
	return &interference{namespace, f.meet}
}

func (f *Fault) meet(c Call, do func() error, by *conn) error {
	f.mu.Lock()
	number := len(f.calls)
	f.calls = append(f.calls, c)
	f.mu.Unlock()
	switch {
	case f.Kind == None, number < f.At, number > f.At && !f.Forever:
		return do()
	case f.Kind == Refused && c.change:
		return unix.EPERM
	case f.Kind == Lost && c.change:
		return lost(do())
	case f.Kind == Refused && by != nil:
		c.spoil(f.Message)
		return do()
	case f.Kind == Lost && by != nil:
		by.lose = true
		return do()
	}
	return ErrInjected
}

// lost is what becomes of a change by the library of which the answer got lost.
func lost(err error) error {
	return fmt.Errorf("%w: %w", kernel.ErrNoAnswer, errors.Join(unix.ENOBUFS, err))
}

// Calls are those that there were.
func (f *Fault) Calls() []Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// String says what fails how.
func (f *Fault) String() string {
	text := fmt.Sprintf("call %d", f.At)
	if calls := f.Calls(); f.At < len(calls) {
		text += " (" + calls[f.At].What + ")"
	}
	text += " " + [...]string{"is let be", "is not sent", "is refused", "has its answer lost"}[f.Kind]
	if f.Kind == Refused {
		text += fmt.Sprintf(" for message %d", f.Message)
	}
	return text
}

// Faults are all that can happen to whoever makes these calls: to each call, and to each message of a transaction.
func Faults(calls []Call) []*Fault {
	var all []*Fault
	for at, c := range calls {
		all = append(all, &Fault{Kind: Unsent, At: at})
		if c.Kinds == nil && !c.change {
			continue
		}
		all = append(all, &Fault{Kind: Lost, At: at})
		if c.change {
			all = append(all, &Fault{Kind: Refused, At: at})
		}
		for message := range c.Kinds {
			all = append(all, &Fault{Kind: Refused, At: at, Message: message})
		}
	}
	return all
}
