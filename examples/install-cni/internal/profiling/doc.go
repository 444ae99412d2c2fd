// SPDX-License-Identifier: Apache-2.0

// Package profiling serves the profiles of this process (net/http/pprof), to this machine only.
//
// Goal: a program that can reach the node over the network cannot read a profile, which reveals the
// content of memory. Non-goals: being on by default, and keeping out the users of the node's own
// network namespace.
package profiling
