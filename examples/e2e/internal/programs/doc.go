// SPDX-License-Identifier: Apache-2.0

// Package programs builds the programs that a cluster is made of, and keeps them: Kubernetes and containerd take minutes to build, and
// change only when their modules do.
//
// A module's programs lie in a directory of the cache that is named for the sum of everything they are built of: its files, the
// flags, the version of Go. What is there is complete, as it got its name when it was.
//
// # Goals
//
// Two runs at once build once. A run that was killed leaves nothing that another would take for programs.
//
// # Non-goals
//
// The product itself: the Makefile builds it, with Go's own cache.
package programs
