// SPDX-License-Identifier: Apache-2.0

// Package request checks what a dataplane that writes to a kernel is asked for, before anything is looked at.
//
// # Goals
//
// Every such dataplane refuses the same, in the same order and words: no plan, an invalid plan or owner, a namespace that isn't open or only
// stands in for one, a plan that it doesn't support. What goes on says in its errors which call, whose plan and which namespace it was.
//
// # Non-goals
//
// Nothing of the kernel is looked at, and whether a context has ended is asked by whoever waits.
package request
