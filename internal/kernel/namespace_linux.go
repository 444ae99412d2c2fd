// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"os"
	"path/filepath"

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
