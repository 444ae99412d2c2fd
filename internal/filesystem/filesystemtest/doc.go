// SPDX-License-Identifier: Apache-2.0

// Package filesystemtest has observers of package filesystem that fail, stop and remember, for tests of those who work on files through it.
//
//   - A [Fault] makes one call fail, be done with its answer lost, be left out, or be the last: from it on nothing happens any more, as
//     if the process had been killed.
//   - A [Disk] knows what would be left if the power failed now: [Disk.PowerCuts] are all the trees that may be found then, and
//     [Tree.Materialise] puts one on the real disk.
//   - [Crashes] end a deed at its calls, by a fault on such a disk, and go on from each different tree that is left.
//   - A [Func] is for whatever else a test wants to do at each call.
//
// # Goals
//
// The disk promises no more than POSIX does: content by fsync of the file, names by fsync of the directory, and of all else any part, in any
// mixture. A rename may be durable before what was written into the file, as on ext4 and XFS without their heuristics.
//
// # Non-goals
//
// Files that are changed past package filesystem: make a new disk behind such a change. Owners, hard links and torn system calls.
package filesystemtest
