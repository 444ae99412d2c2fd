// SPDX-License-Identifier: Apache-2.0

package netfacts

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/namespace"
)

// read enters the namespace: /proc/sys/net shows that of the opening thread (proc_sys_net(5)).
func read(in *os.File) (interception.Facts, error) {
	var facts interception.Facts
	err := namespace.Run(in, func() (err error) {
		net := sysctls("/proc/sys/net")
		if facts.IPv6, err = ipv6(net); err != nil {
			return err
		}
		facts.LoopbackIPv6, err = hasIPv6(net, "lo")
		return err
	})
	return facts, err
}

// ipv6 reports whether an interface has IPv6, or a new one would have it ("default"). The value of
// "all" does not count by itself: writing it sets the others (ip-sysctl). A kernel without IPv6 has
// no such directory; with ipv6.disable=1 the directory may have no interfaces.
func ipv6(net fs.FS) (bool, error) {
	if enabled, err := hasIPv6(net, "default"); err == nil && enabled {
		return true, nil // as on most nodes; no other file has to be read
	}
	if _, err := fs.Stat(net, "ipv4"); err != nil {
		return false, err
	}
	interfaces, err := fs.ReadDir(net, "ipv6/conf")
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	for _, i := range interfaces {
		if i.Name() == "all" {
			continue
		}
		if enabled, err := hasIPv6(net, i.Name()); enabled || err != nil {
			return enabled, err
		}
	}
	return false, nil
}

// hasIPv6 reports whether the interface has IPv6; false if there is no such interface, because it
// may have been removed meanwhile.
func hasIPv6(net fs.FS, name string) (bool, error) {
	disabled, err := fs.ReadFile(net, "ipv6/conf/"+name+"/disable_ipv6")
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && strings.TrimSpace(string(disabled)) != "1", err
}

// sysctls is a directory below /proc/sys. Unlike [os.DirFS] it doesn't register its files with the
// runtime's poller: they can be polled, but reading them never blocks, and each registration wakes
// another thread.
type sysctls string

func (dir sysctls) Open(name string) (fs.File, error) {
	path := filepath.Join(string(dir), name)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}
