// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/namespace"
)

// tryPrivileges tries what the proxy needs for each pod, as ztunnel does at its start
// (verify_syscalls of src/inpod/workloadmanager.rs at ec12059).
func tryPrivileges(mark interception.Mark) error {
	own, err := os.Open("/proc/self/ns/net")
	if err != nil {
		return err
	}
	defer own.Close() //nolint:errcheck // nothing was written
	return namespace.Run(own, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open a socket: %w", err)
		}
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(mark))
		if err != nil {
			err = fmt.Errorf("mark a socket: %w (it takes CAP_NET_ADMIN)", err)
		}
		return errors.Join(err, unix.Close(fd))
	})
}
