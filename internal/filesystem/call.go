// SPDX-License-Identifier: Apache-2.0

package filesystem

import (
	"context"
	"io/fs"
)

// Operation is a kind of system call that changes something.
type Operation uint8

// The operations. Where a call takes more than a path, Call has it.
const (
	// Create makes an empty file that wasn't there.
	Create Operation = iota + 1
	// Write appends to a file that Create made.
	Write
	// Chown gives a file to a user and a group.
	Chown
	// Chmod sets a file's permission bits.
	Chmod
	// Sync makes a file's content, owner and bits durable; its name only SyncDirectory does.
	Sync
	// Rename gives a file the name of another, which is gone then.
	Rename
	// Remove takes a file's name away.
	Remove
	// MakeDirectory makes a directory.
	MakeDirectory
	// SyncDirectory makes the names in a directory durable.
	SyncDirectory
)

// String is the operation's name in error messages.
func (o Operation) String() string {
	return [...]string{"no call", "create", "write", "chown", "chmod", "sync", "rename", "remove", "make directory", "sync directory"}[o]
}

// Call is a system call that changes something.
type Call struct {
	Operation Operation
	// Path is the file or directory that it is about: the Directory's path and a name.
	Path string
	// To is the new path of a Rename, in the same directory.
	To string
	// Data is what Write appends. It must neither be kept nor changed.
	Data []byte
	// Mode is the permission bits of Create, Chmod and MakeDirectory.
	Mode fs.FileMode
	// UID and GID are the user and the group of Chown.
	UID, GID int
}

// Observer sees each call before the system does.
type Observer interface {
	// Observe either makes the call, by do, and returns what do does, or returns an error. It is used by one goroutine at a time for
	// each operation of a Directory; Directories used at once call it at once.
	Observe(call Call, do func() error) error
}

type observerKey struct{}

// WithObserver has those who work on files by an API of their own, which doesn't speak of this package, show their calls to an observer, as
// net/http/httptrace does with the steps of a request.
func WithObserver(ctx context.Context, o Observer) context.Context {
	return context.WithValue(ctx, observerKey{}, o)
}

// ObserverFrom is the observer of [WithObserver]; nil if there is none.
func ObserverFrom(ctx context.Context) Observer {
	o, _ := ctx.Value(observerKey{}).(Observer)
	return o
}

// observe makes a call, under the eyes of the observer if there is one.
func (d Directory) observe(call Call, do func() error) error {
	if d.Observer == nil {
		return do()
	}
	return d.Observer.Observe(call, do)
}
