// SPDX-License-Identifier: Apache-2.0

// Package image makes container images of files, without a registry, a container runtime or another image: OCI archives, which containerd
// imports and registries' tools take.
//
// # Goals
//
// The same files make the same bytes, whoever makes them and when: everything has the time 0, belongs to root, and stands in the order
// of its name.
//
// # Non-goals
//
// Layers beside one, other systems than Linux.
package image
