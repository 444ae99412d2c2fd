// SPDX-License-Identifier: Apache-2.0

// Package atomicfile replaces files so that a reader, a crash or a power cut sees the old content or the new, and nothing else.
//
// Every write goes to a temporary file in the target's directory, which is synced, renamed over the target, and made durable by syncing
// the directory. Nothing is written when the target already has the content, the permission bits and the owner asked for, so that
// writing again is free and wakes nobody who watches the directory.
//
// Targets are regular files. A symbolic link, a directory or a device in the target's place is refused with [ErrNotRegular] and left
// alone: these directories are shared with other agents, and a link there may lead anywhere.
//
// Non-goals: locking (two writers leave the content of one of them, whole), and keeping extended attributes, ACLs or hard links of the
// file that is replaced. Where the system has no owners and permission bits (Windows), those are neither compared nor kept.
package atomicfile
