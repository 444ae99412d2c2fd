// SPDX-License-Identifier: Apache-2.0

// Package kerneltest has kernels that fail and kernels that answer anything, for tests of those who go through package kernel.
//
//   - [Interfere] shows each call to the real kernel to a test, which may let it be, spoil it, or keep it back.
//   - A [Fault] makes one of them fail, in one of the ways in which calls fail; [Faults] are all.
//   - [Answering] has no kernel behind it: it answers what the test says, as fuzz tests need it.
//
// # Goals
//
// A refusal of a datagram is the real kernel's: a message is made one that it does not know, and what that leaves behind is what it leaves
// behind. The messages of the library are out of reach: what is refused of these is not sent.
//
// # Non-goals
//
// Nothing here knows what messages mean, but for telling questions from changes.
package kerneltest
