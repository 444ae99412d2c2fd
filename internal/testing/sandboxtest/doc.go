// SPDX-License-Identifier: Apache-2.0

// Package sandboxtest gives tests of a dataplane fresh network namespaces, and runs programs that
// list their content. It counts descriptors of namespaces. The tests' TestMain is
// [github.com/meshcni/meshcni/internal/testing/sandbox.RunTests].
//
// # Non-goals
//
// Links, neighbours and packets: those are package dataplanetest's.
package sandboxtest
