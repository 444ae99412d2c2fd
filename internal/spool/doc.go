// SPDX-License-Identifier: Apache-2.0

// Package spool keeps lines on disk until a collector takes them: what short-lived programs report
// to a daemon while it is not running.
//
// A spool is a file, and a second one beside it with the older lines. Both are bounded. When the
// first is full it replaces the second, whose lines are lost.
//
// # Goals
//
// Many programs append at once, and never wait long for each other or for the collector. A
// collector that crashes loses nothing: it gets the lines again. A program that is killed loses at
// most the line that it was writing. Only the owner reads and writes the files.
//
// # Non-goals
//
// Lines are not synced to the disk: they need not outlive the machine. They are not interpreted;
// the collector has to recognise a line that a full disk or a kill cut short.
package spool
