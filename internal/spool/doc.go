// SPDX-License-Identifier: Apache-2.0

// Package spool keeps lines on the disk until somebody collects them: what short-lived programs have to tell to a daemon that isn't there.
//
// A spool is a file, and one beside it with the lines before those. Both are bounded; when the first is full it takes the place of the
// second, and what that had is lost.
//
// # Goals
//
// Many programs append at once and never wait for long: neither for each other nor for whoever collects. Nothing is lost to a
// collector that crashes (it gets the lines again), and of a program that is killed at most the line that it was writing. Only the owner reads
// and writes the files.
//
// # Non-goals
//
// Lines aren't synced to the disk: they don't have to outlive the machine. They aren't interpreted; a line that was cut short by a full disk
// or a kill is for the collector to recognise.
package spool
