// SPDX-License-Identifier: Apache-2.0

// Package sandboxtest gives tests of a dataplane fresh network namespaces, in which programs run
// that say what is there. The tests' TestMain is
// [github.com/meshcni/meshcni/internal/sandbox.RunTests].
//
// # Non-goals
//
// Links, neighbours and packets: those are package dataplanetest's.
package sandboxtest
