// SPDX-License-Identifier: Apache-2.0

//go:build unix

package filesystem

import (
	"io/fs"
	"syscall"
)

// hasOwners means that the system has owners and permission bits.
const hasOwners = true

// openFlags never follow a link in the last element, and never wait for a pipe's other end.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

type owner struct{ uid, gid int }

func ownerOf(info fs.FileInfo) *owner {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return &owner{uid: int(stat.Uid), gid: int(stat.Gid)}
}
