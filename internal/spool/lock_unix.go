// SPDX-License-Identifier: Apache-2.0

//go:build unix

package spool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// How a file is locked (flock(2)): shared to append, exclusive to move the file.
const (
	shared    = syscall.LOCK_SH
	exclusive = syscall.LOCK_EX
)

// A program holds a lock for microseconds. One that is stopped meanwhile must not block others.
const (
	tries = 20
	pause = time.Millisecond
)

func lock(ctx context.Context, file *os.File, how int) error {
	for range tries {
		err := syscall.Flock(int(file.Fd()), how|syscall.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return fmt.Errorf("lock it: %w", err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return ErrBusy
}

// open refuses a file that another user could have created. It follows no link, and never blocks.
func open(path string, flags int) (*os.File, error) {
	file, err := os.OpenFile(path, flags|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil {
		owner, ok := info.Sys().(*syscall.Stat_t)
		if !ok || !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 || int64(owner.Uid) != int64(os.Geteuid()) {
			err = fmt.Errorf("%s (%s) is not a regular file of this user's alone: remove it", path, info.Mode())
		}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
