// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// installFilter installs a seccomp filter on this thread.
func installFilter(filter []unix.SockFilter) error {
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}
