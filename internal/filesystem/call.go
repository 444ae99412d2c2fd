// SPDX-License-Identifier: Apache-2.0

package filesystem

import (
	"context"
	"fmt"
	"io/fs"
)

// Operation is a kind of system call that changes something.
type Operation uint8

// The operations. Call has their arguments other than the path.
const (
	// Create creates an empty file.
	Create Operation = iota + 1
	// Write appends to a file that Create made.
	Write
	// Chown changes a file's user and group.
	Chown
	// Chmod sets a file's permission bits.
	Chmod
	// Sync makes a file's content, owner and bits durable; its name needs SyncDirectory.
	Sync
	// Rename renames a file, and replaces the file that had the new name.
	Rename
	// Remove removes a file's name.
	Remove
	// MakeDirectory creates a directory.
	MakeDirectory
	// SyncDirectory makes the names in a directory durable.
	SyncDirectory
)

// String returns the operation's name in error messages.
func (o Operation) String() string {
	names := [...]string{"no call", "create", "write", "chown", "chmod", "sync", "rename", "remove", "make directory", "sync directory"}
	if int(o) >= len(names) {
		return fmt.Sprintf("operation %d", uint8(o))
	}
	return names[o]
}

// Call is a system call that changes something.
type Call struct {
	Operation Operation
	// Path is the path of the file or directory: the Directory's path and a name.
	Path string
	// To is the new path of a Rename, in the same directory.
	To string
	// Data is what Write appends. Observers must neither keep nor change it.
	Data []byte
	// Mode is the permission bits of Create, Chmod and MakeDirectory.
	Mode fs.FileMode
	// UID and GID are the user and the group of Chown.
	UID, GID int
}

// Observer sees each call before the system does.
type Observer interface {
	// Observe either makes the call, by do, and returns the result of do, or returns an error. For
	// each operation of a Directory one goroutine calls it at a time; Directories that are used
	// concurrently call it concurrently.
	Observe(call Call, do func() error) error
}

type observerKey struct{}

// WithObserver returns a context with which functions that wrap this package in an API of their
// own show their calls to an observer, as net/http/httptrace does with the steps of a request.
func WithObserver(ctx context.Context, o Observer) context.Context {
	return context.WithValue(ctx, observerKey{}, o)
}

// ObserverFrom returns the observer of [WithObserver], or nil.
func ObserverFrom(ctx context.Context) Observer {
	o, _ := ctx.Value(observerKey{}).(Observer)
	return o
}

func (d Directory) observe(call Call, do func() error) error {
	if d.Observer == nil {
		return do()
	}
	return d.Observer.Observe(call, do)
}
