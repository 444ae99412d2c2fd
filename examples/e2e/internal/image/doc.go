// SPDX-License-Identifier: Apache-2.0

// Package image makes container images from files, without a registry, a container runtime or
// another image. It writes OCI archives, which containerd imports and registries' tools accept.
//
// # Goals
//
// The same files make the same bytes, at any time and on any machine: everything has the time 0,
// belongs to root, and is sorted by name.
//
// # Non-goals
//
// More than one layer, systems other than Linux.
package image
