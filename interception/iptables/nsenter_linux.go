// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
)

// errNoNsenter is for a caller who has not set [Options.Nsenter].
func errNoNsenter() error {
	return fmt.Errorf("the network namespace belongs to another user namespace, where iptables has to run for conditions on a socket's owner: "+
		"%w without nsenter: set Options.Nsenter, or use nftables", interception.ErrUnsupported)
}

// exitNotFound is how nsenter and shells end when there is no such program as they are to start.
const exitNotFound = 127

// nsenterError is the error of a program that nsenter was to start: it tells a lack of nsenter from one of the
// program.
func nsenterError(nsenter string, err error) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case notThere(err):
		return &nsenterMissingError{fmt.Errorf("%w without the program %s: %w: install util-linux where this runs, or use nftables: the pod "+
			"has users of its own (hostUsers: false), and the kernel takes rules about the owner of a socket only from among these",
			interception.ErrUnsupported, nsenter, err)}
	case errors.As(err, &exit) && exit.ExitCode() == exitNotFound:
		return fmt.Errorf("%w: %w", exec.ErrNotFound, err)
	default:
		return err
	}
}

// enterUsers has the program started in the user namespace that owns the network namespace.
func (t *tools) enterUsers(c *Command) error {
	if t.options.Nsenter == nil {
		return errNoNsenter()
	}
	user := fmt.Sprintf("--user=/proc/self/fd/%d", firstFD+len(c.Files))
	c.Files = append(c.Files, t.users)
	c.Args = slices.Concat(t.options.Nsenter, []string{user, "--"}, c.Args)
	return nil
}

// foreignUsers opens the user namespace that owns a network namespace (ioctl_ns(2)); nil when this process is in it.
func foreignUsers(ns *os.File) (*os.File, error) {
	connection, err := ns.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, errno := -1, error(nil)
	if err := connection.Control(func(namespace uintptr) {
		fd, errno = unix.IoctlRetInt(int(namespace), unix.NS_GET_USERNS)
	}); err != nil {
		return nil, err
	}
	if errno != nil {
		return nil, fmt.Errorf("ask for the user namespace that owns the network namespace: %w", errno)
	}
	owner := os.NewFile(uintptr(fd), "user namespace")
	theirs, err := owner.Stat()
	if err == nil {
		var ours os.FileInfo
		if ours, err = os.Stat("/proc/self/ns/user"); err == nil && !os.SameFile(theirs, ours) {
			return owner, nil
		}
	}
	return nil, errors.Join(err, owner.Close())
}
