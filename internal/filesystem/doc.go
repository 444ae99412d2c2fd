// SPDX-License-Identifier: Apache-2.0

// Package filesystem is the only way in which the daemon and the plugin work on files: in a
// [Directory], by bare names, so that a reader, a crash or a power cut sees a file's old content or
// its new content, and nothing else.
//
// Every write goes to a temporary file beside the target. The temporary file is synced and renamed
// over the target, and the directory is synced. Nothing is written if the target already has the
// wanted content, permission bits and owner, so that writing again is free and wakes no program
// that watches the directory.
//
// Targets are regular files. A symbolic link, a directory or a device in the target's place is
// refused with [ErrNotRegular] and stays unchanged: other agents share these directories, and a
// link may lead anywhere. [Follow] returns where a link leads, for callers that want to work on its
// target. A name that leads out of the directory is refused with [ErrName]. The caller chooses the
// directory's own path: links in it are followed.
//
// # Goals
//
// Each system call that changes something is a [Call], and passes through one [Observer], nil in
// production. With it a test can make the call fail, end the process before or after it, or record
// what a disk would hold if the power failed now (package filesystemtest).
//
// # Non-goals
//
// Locking: after two concurrent writes the file has the complete content of one of them. Extended
// attributes, ACLs and hard links of a replaced file are lost. On systems without owners and
// permission bits (Windows), these are neither compared nor kept, and directories are not synced.
package filesystem
