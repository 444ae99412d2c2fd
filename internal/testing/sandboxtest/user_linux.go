// SPDX-License-Identifier: Apache-2.0

package sandboxtest

import (
	"errors"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

// AsAnotherUser runs f in a thread of user 1234. It reports false where there are no other users.
func AsAnotherUser(t testing.TB, f func()) bool {
	t.Helper()
	info, err := sandbox.Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this function
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), 1234, ^uintptr(0))
		if errno == 0 {
			f()
			done <- nil
			return
		}
		done <- errno
	}()
	err = <-done
	if info.SingleID && errors.Is(err, unix.EINVAL) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	return true
}
