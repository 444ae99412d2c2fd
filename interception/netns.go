// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
)

// Netns is an open network namespace. A caller opens it once, which also verifies it, passes it to
// a [Dataplane], and closes it. Its path is never resolved twice, so that a dataplane changes
// exactly the namespace that was verified. The zero value is invalid: a forgotten argument never
// leads to the host's namespace.
type Netns struct {
	file    *os.File
	id      NetnsID
	standIn *standIn // replaces the file in tests
	others  map[string]*Netns
}

// NetnsID identifies a network namespace while it lives: its device and inode (namespaces(7)).
type NetnsID struct {
	Device, Inode uint64
}

// NetnsOptions say how to verify a namespace. The zero value fits the host's PID namespace.
type NetnsOptions struct {
	// ProcRoot is the mount point of a proc file system whose process 1 is the host's. Empty means
	// "/proc"; a container that mounts the host's may use "/host/proc".
	ProcRoot string
	// Own also accepts the namespace that this process started in, unless it is the host's.
	Own bool
}

// OpenNetns opens the network namespace at path, such as a pod's CNI_NETNS. It refuses the host's
// namespace and, unless the options accept it, the one that this process started in with
// [ErrHostNetns], and anything that is not a network namespace with [ErrNotNetns]. It refuses every
// namespace when it cannot determine the host's. A missing path is fs.ErrNotExist.
//
// The namespace that this process started in is that of its main thread. A long-lived program that
// enters namespaces should keep its main thread out of them (runtime.LockOSThread in its main
// goroutine); otherwise OpenNetns may refuse a namespace that the main thread has just entered.
func OpenNetns(path string, o NetnsOptions) (*Netns, error) {
	file, err := openReadOnly(path)
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	return NetnsFromFile(file, o)
}

// NetnsFromFile verifies an open descriptor, such as one received over a socket, as [OpenNetns]
// does. It takes ownership of the file and closes it on an error.
func NetnsFromFile(file *os.File, o NetnsOptions) (*Netns, error) {
	if file == nil {
		return nil, fmt.Errorf("no file is given: %w", ErrNotNetns)
	}
	ns, err := verifiedNetns(file)
	if err == nil {
		err = ns.refuseHost(o)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return ns, nil
}

// HostNetns opens the host's own network namespace: that of process 1 under the options' ProcRoot.
// Only this function does, so that a caller never gets it by accident.
func HostNetns(o NetnsOptions) (*Netns, error) {
	path := filepath.Join(o.procRoot(), "1", "ns", "net")
	file, err := openReadOnly(path)
	if err != nil {
		return nil, fmt.Errorf("open the host's network namespace: %w; %s", err, hostRemedy(err))
	}
	ns, err := verifiedNetns(file)
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return ns, nil
}

// File returns the descriptor, which n owns; nil for the zero value and [StandInNetns].
func (n *Netns) File() *os.File { return n.file }

// ID returns the namespace's identity, and the zero NetnsID for the zero value.
func (n *Netns) ID() NetnsID { return n.id }

// With returns a handle of the same namespace for plans that refer to another one by a label
// ([Veth]). Both handles share the descriptor: closing either closes it. The other namespace stays
// the caller's, who keeps it open while a dataplane uses the handle. The label replaces an earlier
// one of the same name, in the new handle only.
func (n *Netns) With(label string, other *Netns) *Netns {
	if n == nil {
		return nil
	}
	labelled := *n
	labelled.others = maps.Clone(n.others)
	if labelled.others == nil {
		labelled.others = map[string]*Netns{}
	}
	labelled.others[label] = other
	return &labelled
}

// Labelled yields the namespaces that With was given, in the order of their labels.
func (n *Netns) Labelled() iter.Seq2[string, *Netns] {
	return func(yield func(string, *Netns) bool) {
		for _, label := range slices.Sorted(maps.Keys(n.others)) {
			if !yield(label, n.others[label]) {
				return
			}
		}
	}
}

// CheckLabels returns nil if every namespace that the plan refers to has been given to
// [Netns.With], is open, and is another one than n. A dataplane calls it before it applies a plan.
// The error is an [*ApplyError] about the link, and wraps [ErrNotNetns] or os.ErrClosed.
func (n *Netns) CheckLabels(p *Plan) error {
	for l := range ObjectsOf[Link](p) {
		if l.Veth == nil {
			continue
		}
		other, given := n.others[l.Veth.Namespace]
		var err error
		switch {
		case !given:
			err = fmt.Errorf("no namespace is labelled %q: %w: name one with Netns.With", l.Veth.Namespace, ErrNotNetns)
		case other.Check() != nil:
			err = fmt.Errorf("the namespace labelled %q: %w", l.Veth.Namespace, other.Check())
		case other.id == n.id:
			err = fmt.Errorf("the namespace labelled %q is the link's own: %w: the other end needs another one", l.Veth.Namespace, ErrNotNetns)
		}
		if err != nil {
			return &ApplyError{At: string(l.ID), Why: l.Why, Err: err}
		}
	}
	return nil
}

// Close closes the descriptor. The namespace lives on while others refer to it. The error is
// [ErrNotNetns] for a nil or zero Netns, and [os.ErrClosed] for a closed one.
func (n *Netns) Close() error {
	if n == nil || n.standIn == nil && n.file == nil {
		return fmt.Errorf("close %s: %w", n, ErrNotNetns)
	}
	if n.standIn != nil {
		if n.standIn.closed.Swap(true) {
			return fmt.Errorf("close %s: %w", n.standIn.name, os.ErrClosed)
		}
		return nil
	}
	return n.file.Close()
}

// String returns the path that the namespace was opened by, and its inode.
func (n *Netns) String() string {
	switch {
	case n != nil && n.standIn != nil:
		return fmt.Sprintf("%s (stands in for net:[%d])", n.standIn.name, n.id.Inode)
	case n == nil || n.file == nil:
		return "no network namespace"
	}
	return fmt.Sprintf("%s (net:[%d])", n.file.Name(), n.id.Inode)
}

func (o NetnsOptions) procRoot() string {
	return cmp.Or(o.ProcRoot, "/proc")
}

// refuseHost compares the namespace with the host's and with the one this process started in.
func (n *Netns) refuseHost(o NetnsOptions) error {
	for _, known := range []struct{ path, whose, says string }{
		{filepath.Join(o.procRoot(), "1", "ns", "net"), "the host's", ""},
		{filepath.Join("/proc", "self", "ns", "net"), "the one this process started in", "it is the one this process started in: "},
	} {
		if o.Own && known.says != "" {
			continue
		}
		id, err := netnsIDAt(known.path)
		if err != nil {
			return fmt.Errorf("refuse %s: cannot establish which network namespace is %s: %w; %s", n, known.whose, err, hostRemedy(err))
		}
		if id == n.id {
			return fmt.Errorf("refuse %s: %s%w; pass the pod's namespace", n, known.says, ErrHostNetns)
		}
	}
	return nil
}

// hostRemedy says what helps if the namespace of process 1 cannot be opened.
func hostRemedy(err error) string {
	if errors.Is(err, fs.ErrPermission) {
		return "run as root, with the right to trace processes (CAP_SYS_PTRACE), and on a node with AppArmor without the container " +
			"runtime's profile (appArmorProfile Unconfined): only so may one look at the namespaces of others' processes"
	}
	return "give a proc root in which process 1 is the host's"
}

// standIn is a handle without a namespace.
type standIn struct {
	name   string
	closed atomic.Bool
}

// StandInNetns returns a handle without a network namespace, for tests of code that uses a
// [Dataplane]: on any system and without privileges. It has no descriptor, so that nothing can be
// entered or changed through it. [Netns.File] returns nil, and a dataplane that works on a kernel
// refuses the handle with [ErrNotNetns]; that of package dataplanetest/fake accepts it.
//
// Two handles with the same id stand for the same namespace. No file system has device 0, so that
// an id without Device is never that of a real namespace. Only [Netns.String] uses the name.
func StandInNetns(name string, id NetnsID) *Netns {
	return &Netns{id: id, standIn: &standIn{name: name}}
}

// Check returns nil as long as the handle can be used. It returns [ErrNotNetns] for a handle that
// is nil or was never opened, and os.ErrClosed for one that was closed. A dataplane calls it first.
// It accepts a handle without a namespace, whose [Netns.File] is nil.
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
	// Control refuses a closed descriptor.
	if err != nil || connection.Control(func(uintptr) {}) != nil {
		return fmt.Errorf("%s: %w", n, os.ErrClosed)
	}
	return nil
}
