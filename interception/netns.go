// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
)

// Netns is an open network namespace. It is opened once, verified, passed to a [Dataplane], and closed by its owner; a name is
// never resolved twice, so that what was verified is what is programmed. The zero value is invalid: nobody reaches the
// host's namespace by leaving something out.
type Netns struct {
	file    *os.File
	id      NetnsID
	standIn *standIn // instead of a file, in tests
}

// NetnsID identifies a network namespace while somebody holds it: device and inode of its descriptor (namespaces(7)).
type NetnsID struct {
	Device, Inode uint64
}

// NetnsOptions say how a namespace is verified. The zero value is right for a process in the host's PID namespace.
type NetnsOptions struct {
	// ProcRoot is where a proc file system is mounted whose process 1 is the host's: "/proc" when empty; in a container that
	// mounts the host's, for example "/host/proc".
	ProcRoot string
}

// OpenNetns opens the network namespace at path, such as the CNI_NETNS of a pod. The host's namespace and the one that this
// process started in are refused with [ErrHostNetns], anything that is no network namespace with [ErrNotNetns]; when the host's
// cannot be established, everything is refused. A path that leads nowhere is fs.ErrNotExist.
//
// The namespace that this process started in is that of its main thread. A program that lives long and enters namespaces should keep
// the main thread out of that (runtime.LockOSThread in its main goroutine), or a namespace that was just entered by it may be refused.
func OpenNetns(path string, o NetnsOptions) (*Netns, error) {
	file, err := openReadOnly(path)
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	return NetnsFromFile(file, o)
}

// OpenNetnsOfPID opens the network namespace of a process, by its id under the options' ProcRoot, as [OpenNetns] does.
func OpenNetnsOfPID(pid int, o NetnsOptions) (*Netns, error) {
	return OpenNetns(filepath.Join(o.procRoot(), strconv.Itoa(pid), "ns", "net"), o)
}

// NetnsFromFile verifies an open descriptor, such as one received over a socket, as [OpenNetns] does. It takes over the file,
// and closes it when it refuses it.
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

// HostNetns opens the host's own network namespace: that of process 1 under the options' ProcRoot. It is the only way to get
// it, and has to be spelled out.
func HostNetns(o NetnsOptions) (*Netns, error) {
	path := filepath.Join(o.procRoot(), "1", "ns", "net")
	file, err := openReadOnly(path)
	if err != nil {
		return nil, fmt.Errorf("open the host's network namespace: %w", err)
	}
	ns, err := verifiedNetns(file)
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return ns, nil
}

// File is the open descriptor. It stays the property of the Netns. It is nil for the zero value and for [StandInNetns].
func (n *Netns) File() *os.File { return n.file }

// ID identifies the namespace. It is zero for the zero value.
func (n *Netns) ID() NetnsID { return n.id }

// Close closes the descriptor. The namespace itself lives on as long as somebody else holds it. The error is [ErrNotNetns] for a nil or zero
// Netns, and [os.ErrClosed] for one that is closed already.
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

// String is the path the namespace was opened by, and its inode.
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
	if o.ProcRoot == "" {
		return "/proc"
	}
	return o.ProcRoot
}

// refuseHost compares with the host's namespace and with the one this process started in.
func (n *Netns) refuseHost(o NetnsOptions) error {
	for _, known := range []struct{ path, whose, says string }{
		{filepath.Join(o.procRoot(), "1", "ns", "net"), "the host's", ""},
		{filepath.Join("/proc", "self", "ns", "net"), "the one this process started in", "it is the one this process started in: "},
	} {
		id, err := netnsIDAt(known.path)
		if err != nil {
			remedy := "give a proc root in which process 1 is the host's"
			if errors.Is(err, fs.ErrPermission) {
				remedy = "run as root, with the right to trace processes (CAP_SYS_PTRACE): only so may one look at the namespaces of others' processes"
			}
			return fmt.Errorf("refuse %s: cannot establish which network namespace is %s: %w; %s", n, known.whose, err, remedy)
		}
		if id == n.id {
			return fmt.Errorf("refuse %s: %s%w; pass the pod's namespace", n, known.says, ErrHostNetns)
		}
	}
	return nil
}

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
