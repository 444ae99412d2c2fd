// SPDX-License-Identifier: Apache-2.0

//go:build unix

package filesystem

import (
	"io/fs"
	"syscall"
)

// hasOwners means that the system has owners and permission bits.
const hasOwners = true

// nonBlocking never waits for a pipe's other end.
const nonBlocking = syscall.O_NONBLOCK

// openFlags neither wait nor follow a link in the last element.
const openFlags = syscall.O_NOFOLLOW | nonBlocking

type owner struct{ uid, gid int }

func ownerOf(info fs.FileInfo) *owner {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return &owner{uid: int(stat.Uid), gid: int(stat.Gid)}
}
