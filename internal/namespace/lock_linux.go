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

// patience is how long Lock waits. No well-behaved holder needs the lock for longer.
const patience = 2 * time.Second

// Lock waits until no other caller, in any process, holds the lock of the network namespace that in
// has open. The lock is on the namespace's inode (flock(2)), so it ends with its holder. A process
// inside the namespace can take the lock, too, and could keep it for ever; therefore Lock waits two
// seconds at most, and then goes on without it.
//
// Lock returns ctx with the lock's file ([Held]): a process that has to keep the lock when this
// process is killed inherits the file.
//
// The error is the context's, or the reason why the descriptor cannot be locked.
func Lock(ctx context.Context, in *os.File) (_ context.Context, release func(), err error) {
	// A lock belongs to an open file description, so this call needs one of its own.
	file, err := reopen(in)
	if err != nil {
		return nil, nil, fmt.Errorf("lock network namespace: %w", err)
	}
	held, release := context.WithValue(ctx, heldKey{}, file), func() { _ = file.Close() }
	ticker, deadline := time.NewTicker(time.Millisecond), time.NewTimer(patience)
	defer ticker.Stop()
	defer deadline.Stop()
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return held, release, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			release()
			return nil, nil, fmt.Errorf("lock network namespace %s: %w", in.Name(), err)
		}
		select {
		case <-ctx.Done():
			release()
			return nil, nil, ctx.Err()
		case <-deadline.C:
			return held, release, nil
		case <-ticker.C:
		}
	}
}

type heldKey struct{}

// Held returns the file of the lock that ctx carries, which is open until the lock is released; nil
// when ctx carries no lock. The lock lasts until no process has the file open.
func Held(ctx context.Context) *os.File {
	file, _ := ctx.Value(heldKey{}).(*os.File)
	return file
}

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
