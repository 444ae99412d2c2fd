// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long Lock waits for others. Nobody who means well holds the lock for longer.
const patience = 2 * time.Second

// Lock waits until nobody else works on the network namespace of an open descriptor: nobody who asks here, in whatever process. The lock is
// one of the namespace's inode (flock(2)), so that it ends with its holder. Whoever is in the namespace can take it, too, and could keep
// others out; therefore Lock waits two seconds at most, and then goes on without it.
//
// The error is the context's, or says why the descriptor cannot be locked.
func Lock(ctx context.Context, in *os.File) (release func(), err error) {
	// A lock belongs to an open file: one that is opened anew here is nobody else's.
	file, err := reopen(in)
	if err != nil {
		return nil, fmt.Errorf("lock network namespace: %w", err)
	}
	release = func() { _ = file.Close() }
	ticker, deadline := time.NewTicker(time.Millisecond), time.NewTimer(patience)
	defer ticker.Stop()
	defer deadline.Stop()
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return release, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			release()
			return nil, fmt.Errorf("lock network namespace %s: %w", in.Name(), err)
		}
		select {
		case <-ctx.Done():
			release()
			return nil, ctx.Err()
		case <-deadline.C:
			return release, nil
		case <-ticker.C:
		}
	}
}

// reopen opens the file of an open descriptor once more.
func reopen(in *os.File) (file *os.File, err error) {
	connection, err := in.SyscallConn()
	if err != nil {
		return nil, err
	}
	if control := connection.Control(func(fd uintptr) {
		file, err = os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	}); control != nil {
		return nil, control
	}
	return file, err
}
