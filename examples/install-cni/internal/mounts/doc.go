// SPDX-License-Identifier: Apache-2.0

// Package mounts detects that a directory of the node is no longer the one that this container has
// mounted.
//
// A mount shows the directory that had the name when it was mounted. Instructions for exchanging a
// network plugin may have the operator move the directory away, or remove it, and create a new one.
// Then the container keeps the old directory, where all looks right, while the container runtime
// reads the new one, in which the plugin is missing. Nothing that the process does can help; after
// a restart, the container mounts the new directory.
//
// Goal: certainty, by what the kernel reports of each mount (proc_pid_mountinfo(5)). Non-goals:
// directories inside a mounted directory, whose path every access resolves again; and links above
// the directory on the node, which are invisible from inside.
package mounts
