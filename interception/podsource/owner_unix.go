// SPDX-License-Identifier: Apache-2.0

//go:build unix

package podsource

import (
	"io/fs"
	"os"
	"syscall"
)

// nonBlocking makes opening a file not wait, even for a pipe that no process writes to.
const nonBlocking = syscall.O_NONBLOCK

// trustedOwner reports whether a file belongs to root or to this process's user.
func trustedOwner(info fs.FileInfo) bool {
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && (owner.Uid == 0 || int64(owner.Uid) == int64(os.Geteuid()))
}
