// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// monitorSlack is how much longer than it asked for the monitor may sleep, in nanoseconds.
const monitorSlack = "10000000"

// calmMonitor lets the thread by which the Go runtime watches over its goroutines sleep longer. Otherwise it wakes up every 20 microseconds,
// dozens of times within an ADD, which is a tenth of what an ADD costs. What it is there for, taking the processor from goroutines that don't
// yield it, then comes some milliseconds late.
//
// It is the first thread that a process makes, and has the next id unless another process was faster. Where it isn't found, or may not be
// changed, nothing happens. See proc_pid_timerslack_ns(5).
func calmMonitor() {
	for thread := os.Getpid() + 1; thread < os.Getpid()+8; thread++ {
		if unix.Access(fmt.Sprintf("/proc/self/task/%d", thread), unix.F_OK) != nil {
			continue // somebody else's
		}
		if file, err := unix.Open(fmt.Sprintf("/proc/%d/timerslack_ns", thread), unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil {
			_, _ = unix.Write(file, []byte(monitorSlack))
			_ = unix.Close(file)
		}
		return
	}
}
