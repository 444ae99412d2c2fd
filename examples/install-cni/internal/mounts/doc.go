// SPDX-License-Identifier: Apache-2.0

// Package mounts finds out that a directory of the node is no longer the one that this container has mounted.
//
// A mount of a directory is one of what has the name at that moment. When somebody on the node moves the directory away, or removes it, and
// makes a new one, as instructions for exchanging a network plugin have it, the container goes on with the old one: all looks right there,
// while the container runtime reads the new one, in which the plugin is missing. Nothing that the process does can help; a new
// start of the container mounts what is there then.
//
// Goal: to say so for certain, by what the kernel says of each mount (proc_pid_mountinfo(5)). Non-goals: directories that are not mounted
// but lie in one that is, whose path is followed anew by everybody; and links above the directory on the node, which nobody can see from
// inside.
package mounts
