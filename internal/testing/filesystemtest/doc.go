// SPDX-License-Identifier: Apache-2.0

// Package filesystemtest has observers of package filesystem that fail, stop and record, for tests
// of code that uses that package.
//
//   - A [Fault] makes one call fail, with or without effect, or skips it, or makes it the last:
//     from it on nothing is done any more, as if the process had been killed.
//   - A [Disk] knows what a power cut would leave: [Disk.PowerCuts] returns all possible trees, and
//     [Tree.Materialise] puts one on the real disk.
//   - [Crashes] end a deed at its calls, by a fault on such a disk, and continue from each
//     different tree that is left.
//   - A [Func] is for anything else that a test does at each call.
//
// # Goals
//
// The disk promises no more than POSIX does: content by fsync of the file, names by fsync of the
// directory, and any part of all else, in any combination. A rename may be durable before the
// content of the file, as on ext4 and XFS without their heuristics.
//
// # Non-goals
//
// Files that are changed without package filesystem: create a new disk after such a change. Owners,
// hard links and torn system calls.
package filesystemtest
