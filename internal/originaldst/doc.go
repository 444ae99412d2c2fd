// SPDX-License-Identifier: Apache-2.0

// Package originaldst asks the kernel for the destination that an accepted connection had before a
// rule redirected it. A proxy does so for each captured connection.
//
// Non-goals: UDP, for which the kernel does not answer.
package originaldst
