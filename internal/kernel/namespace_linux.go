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

// Of returns the namespace of a descriptor, which the caller keeps open meanwhile.
func Of(in *os.File) Namespace { return open{in} }

type open struct{ file *os.File }

func (n open) Dial(protocol int) (c Conn, err error) {
	err = namespace.Run(n.file, func() error {
		c, err = dial(protocol)
		return err
	})
	return c, err
}

// sysctlPath returns the path of a parameter in the network namespace of the thread that opens it
// (proc_pid_net(5)). A valid key cannot lead out of /proc/sys/net.
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
	return namespace.Run(n.file, func() error { return writeSysctl(sysctlPath(key), key, value) })
}

func (n open) Change(_ string, change func() error) error {
	return namespace.Run(n.file, func() error { return answered(guarded(change)) })
}

// guarded runs a function of the library, which panics at answers of an unexpected form. A panic
// would end the process, and with it the work for all other pods.
func guarded(change func() error) (err error) {
	defer func() {
		if broken := recover(); broken != nil {
			err = fmt.Errorf("an answer that cannot be read: %v", broken)
		}
	}()
	return change()
}

// answered distinguishes the kernel's refusals from lost answers. The library returns both
// unchanged: a refusal is an error number, but so are ENOBUFS, when the kernel had no memory for
// the answer, and EAGAIN, when the answer did not come in time.
func answered(err error) error {
	refusal, is := errors.AsType[syscall.Errno](err)
	if err == nil || is && refusal != unix.ENOBUFS && refusal != unix.EAGAIN {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNoAnswer, err)
}

// Explain adds the kernel's explanations to the errors of github.com/vishvananda/netlink: "IPv6 is
// disabled on nexthop device" instead of only "permission denied". The library has one switch for
// the whole process, so every program that writes links or routes calls Explain at the start of
// main.
func Explain() { nl.EnableErrorMessageReporting = true }
