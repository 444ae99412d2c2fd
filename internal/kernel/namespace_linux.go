// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/namespace"
)

// Of is the namespace of an open descriptor, which stays the caller's, and is to be open as long.
func Of(in *os.File) Namespace { return open{in} }

// open is the namespace of an open descriptor.
type open struct{ file *os.File }

func (n open) Dial(protocol int) (c Conn, err error) {
	err = namespace.Run(n.file, func() error {
		c, err = dial(protocol)
		return err
	})
	return c, err
}

// sysctlPath is where the kernel shows a parameter of the namespace that the thread which opens it is in (proc_pid_net(5)). A valid key
// does not lead out of it.
func sysctlPath(key string) string { return filepath.Join("/proc/sys/net", filepath.FromSlash(key)) }

func (n open) ReadSysctl(key string) (string, error) {
	var text []byte
	err := namespace.Run(n.file, func() (err error) {
		text, err = os.ReadFile(sysctlPath(key))
		return err
	})
	return string(text), err
}

func (n open) WriteSysctl(key, value string) error {
	return namespace.Run(n.file, func() error {
		file, err := os.OpenFile(sysctlPath(key), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = file.WriteString(value)
		return errors.Join(err, file.Close())
	})
}

func (n open) Change(_ string, change func() error) error {
	return namespace.Run(n.file, func() error { return answered(guarded(change)) })
}

// guarded runs a function of the library, which panics at answers of a form that it doesn't expect. A panic would end the process, and
// with it the work for all other pods.
func guarded(change func() error) (err error) {
	defer func() {
		if broken := recover(); broken != nil {
			err = fmt.Errorf("an answer that cannot be read: %v", broken)
		}
	}()
	return change()
}

// answered tells the kernel's refusals from the errors of a request whose answer got lost. The library gives both as they come: a refusal
// is an error number, and so are ENOBUFS, of an answer for which there was no memory, and EAGAIN, of one that did not come in time.
func answered(err error) error {
	var refusal syscall.Errno
	if err == nil || errors.As(err, &refusal) && refusal != unix.ENOBUFS && refusal != unix.EAGAIN {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNoAnswer, err)
}

// Explain has the kernel's explanations in the errors of github.com/vishvananda/netlink: "IPv6 is disabled on nexthop device", where
// there is only "permission denied" otherwise. The library has one switch for the whole process, so main calls this, before it does
// anything else: each main of a program that writes links or routes.
func Explain() { nl.EnableErrorMessageReporting = true }
