// SPDX-License-Identifier: Apache-2.0

// Package programs builds the programs of a cluster and caches them: Kubernetes and containerd take
// minutes to build, and change only with their modules.
//
// A module's programs are in a directory of the cache whose name is a checksum of everything they
// are built from: the module's files, the flags, the version of Go. A directory with that name is
// complete, because it is renamed to it at the end.
//
// # Goals
//
// Two runs at once build once. A killed run leaves nothing that another run would take for
// programs.
//
// # Non-goals
//
// The product itself: the Makefile builds it, with Go's own cache.
package programs
