// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"fmt"
	"os"
	"syscall"
)

// From linux/nsfs.h and linux/sched.h.
const (
	ioctlNamespaceType = 0xb703 // NS_GET_NSTYPE
	cloneNewNet        = 0x40000000
)

// openReadOnly never blocks, even on a FIFO.
func openReadOnly(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
}

// verifiedNetns asks the kernel whether the descriptor is a network namespace, and identifies it.
func verifiedNetns(file *os.File) (*Netns, error) {
	connection, err := file.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file.Name(), err)
	}
	isNetns := false
	if err := connection.Control(func(fd uintptr) {
		kind, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, ioctlNamespaceType, 0)
		isNetns = errno == 0 && kind == cloneNewNet
	}); err != nil {
		return nil, fmt.Errorf("%s: %w", file.Name(), err)
	}
	if !isNetns {
		return nil, fmt.Errorf("%s: %w", file.Name(), ErrNotNetns)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("identify network namespace: %w", err)
	}
	return &Netns{file: file, id: netnsID(info)}, nil
}

// netnsIDAt follows the link at path.
func netnsIDAt(path string) (NetnsID, error) {
	info, err := os.Stat(path)
	if err != nil {
		return NetnsID{}, err
	}
	return netnsID(info), nil
}

func netnsID(info os.FileInfo) NetnsID {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return NetnsID{}
	}
	return NetnsID{Device: uint64(stat.Dev), Inode: stat.Ino}
}
