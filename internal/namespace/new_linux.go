// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// New makes a network namespace with nothing in it but a loopback interface that is down. It has no name, no path and no process: it ends
// with the file, which is the caller's, and with whatever was opened in it.
func New() (file *os.File, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The thread is not unlocked: it is thrown away, so that nothing else ever runs in that namespace.
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			// The main thread is never thrown away, and its namespace is what /proc/self/ns/net shows. While it is held here,
			// another one has to take the work.
			defer runtime.UnlockOSThread()
			file, err = New()
			return
		}
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			err = fmt.Errorf("make network namespace: %w (it takes CAP_SYS_ADMIN)", err)
			return
		}
		file, err = os.Open("/proc/thread-self/ns/net")
	}()
	<-done
	return file, err
}
