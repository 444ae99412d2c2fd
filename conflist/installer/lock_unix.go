// SPDX-License-Identifier: Apache-2.0

//go:build unix

package installer

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// tryLock locks a file or directory without waiting. The error is errLocked, or
// errors.ErrUnsupported if the file system has no locks.
func tryLock(file *os.File, mode lockMode) error {
	how := unix.LOCK_SH
	if mode == exclusive {
		how = unix.LOCK_EX
	}
	for {
		err := unix.Flock(int(file.Fd()), how|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return errLocked
		default:
			return fmt.Errorf("lock %s: %w: %w", file.Name(), errors.ErrUnsupported, err)
		}
	}
}

// unlock ends the lock for every copy of the descriptor. Its error does not matter: closing the
// last copy ends the lock as well.
func unlock(file *os.File) { _ = unix.Flock(int(file.Fd()), unix.LOCK_UN) }
