// SPDX-License-Identifier: Apache-2.0

// Package request checks the arguments of a dataplane that writes to a kernel, before the dataplane
// looks at the kernel.
//
// # Goals
//
// All such dataplanes refuse the same arguments, in the same order and words: no plan, an invalid
// plan or owner, a namespace that is not open or is only a stand-in, a plan that the dataplane does
// not support. Later errors name the call, the plan's owner and the namespace.
//
// # Non-goals
//
// The package looks at nothing in the kernel. Whether the context has ended is checked where the
// dataplane waits.
package request
