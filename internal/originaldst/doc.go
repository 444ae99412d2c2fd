// SPDX-License-Identifier: Apache-2.0

// Package originaldst asks the kernel where an accepted connection was meant to go, before a rule sent it here: what a proxy does
// with each captured connection.
//
// Non-goals: UDP, for which the kernel doesn't answer.
package originaldst
