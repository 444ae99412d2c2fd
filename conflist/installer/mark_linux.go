// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"os"

	"golang.org/x/sys/unix"
)

// mark locks the byte of a file whose offset is the number, until the file is closed: an open file
// description lock (fcntl_locking(2)), which does not interfere with those of tryLock.
func mark(file *os.File, number uint64) error {
	return unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_RDLCK, Start: int64(number), Len: 1})
}

// isMarked reports whether another daemon has marked the number.
func isMarked(file *os.File, number uint64) (bool, error) {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(number), Len: 1}
	err := unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, &lock)
	return lock.Type != unix.F_UNLCK, err
}
