// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/namespace"
)

// identify returns the identity of a namespace that is open; zero for nil. Of a file that is no
// namespace it returns one that no namespace has.
func identify(file *os.File) interception.NetnsID {
	info, err := file.Stat() // an error for nil
	if err != nil {
		return interception.NetnsID{}
	}
	stat, is := info.Sys().(*syscall.Stat_t)
	if !is {
		return interception.NetnsID{}
	}
	return interception.NetnsID{Device: uint64(stat.Dev), Inode: stat.Ino}
}

// hasInterface reports whether a namespace has an interface of a name.
func hasInterface(in *interception.Netns, name string) (has bool, err error) {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return false, err
	}
	err = namespace.Run(in.File(), func() error {
		socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		err = unix.IoctlIfreq(socket, unix.SIOCGIFINDEX, request)
		has = err == nil
		if errors.Is(err, unix.ENODEV) {
			err = nil
		}
		return errors.Join(err, unix.Close(socket))
	})
	if err != nil {
		return false, fmt.Errorf("look for interface %s in %s: %w", name, in, err)
	}
	return has, nil
}
