// SPDX-License-Identifier: Apache-2.0

// Package filesystem is the one way in which the daemon and the plugin work on files: in a [Directory], by bare names, so that a reader,
// a crash or a power cut sees a file's old content or its new, and nothing else.
//
// Every write goes to a temporary file beside the target, which is synced, renamed over the target, and made durable by syncing the
// directory. Nothing is written when the target already has the content, the permission bits and the owner asked for, so that
// writing again is free and wakes nobody who watches the directory.
//
// Targets are regular files. A symbolic link, a directory or a device in the target's place is refused with [ErrNotRegular] and left
// alone: these directories are shared with other agents, and a link there may lead anywhere. [Follow] says where one leads, for callers
// who want to work on that instead. A name that leads out of the directory is refused with [ErrName]. The directory's own path is the
// caller's: links in it are followed.
//
// # Goals
//
// Each system call that changes something is a [Call], and passes one [Observer], nil in production. There a test can make it fail, end
// the process before or behind it, or write down what a disk would hold if the power failed now (package filesystemtest).
//
// # Non-goals
//
// Locking: two writers leave the content of one of them, whole. Keeping extended attributes, ACLs or hard links of the file that is
// replaced. Where the system has no owners and permission bits (Windows), those are neither compared nor kept, and directories not synced.
package filesystem
