// SPDX-License-Identifier: Apache-2.0

// Package kerneltest provides kernels that fail and kernels that give any answer, for tests of the
// packages that use package kernel.
//
//   - [Interfere] shows each call to the real kernel to a test, which may pass it on, spoil it, or
//     withhold it.
//   - A [Fault] makes one call fail, in one of the ways in which calls fail; [Faults] returns all.
//   - [Answering] has no kernel: it gives the test's answers, as fuzz tests need.
//
// # Goals
//
// The real kernel refuses a datagram: one of its messages becomes a message that the kernel does
// not know, so what is left afterwards is what a real refusal leaves. The library's messages are
// out of reach: a refused one is not sent.
//
// # Non-goals
//
// The package does not know what messages mean, except that it distinguishes queries from changes.
package kerneltest
