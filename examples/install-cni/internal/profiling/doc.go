// SPDX-License-Identifier: Apache-2.0

// Package profiling serves the profiles of this process (net/http/pprof), to this machine alone.
//
// Goal: whoever can reach the node over the network can't reach a profile, which tells what is in the memory. Non-goals: being on by
// default, and keeping out the users of the node's own network namespace.
package profiling
