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

// ErrInjected is the error of calls that fail without reaching the kernel.
var ErrInjected = errors.New("injected")

// Kind is a way in which a call fails.
type Kind uint8

// The ways in which a call fails.
const (
	// None lets all calls pass.
	None Kind = iota
	// Unsent makes the call fail before it reaches the kernel.
	Unsent
	// Refused makes the kernel refuse a message.
	Refused
	// Lost lets the kernel do it, and loses the answer.
	Lost
)

// Fault makes one call fail, and counts all calls. The zero value only counts.
type Fault struct {
	// Kind is the way in which the call fails. Only datagrams and changes by the library can be
	// refused or lose their answers: other calls are then unsent.
	Kind Kind
	// At is the index of the call, counted from 0.
	At int
	// Message is the index of the call's message that is refused, counted from 0.
	Message int
	// Forever makes all later calls fail, too, as when the process ends there.
	Forever bool

	mu    sync.Mutex
	calls []Call
}

// Open returns the namespace of an open descriptor, with the fault.
func (f *Fault) Open(in *os.File) kernel.Namespace { return f.In(kernel.Of(in)) }

// In returns a namespace with the fault.
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

// lost is the error of a library's change whose answer got lost.
func lost(err error) error {
	return fmt.Errorf("%w: %w", kernel.ErrNoAnswer, errors.Join(unix.ENOBUFS, err))
}

// Calls returns the calls so far.
func (f *Fault) Calls() []Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// String describes which call fails and how.
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

// Faults returns all faults that can hit these calls: each call, and each message of a transaction.
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
