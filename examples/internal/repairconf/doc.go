// SPDX-License-Identifier: Apache-2.0

// Package repairconf defines what the daemon and the node-watcher exchange about repair: the
// daemon's configuration ([Config]), and the node-watcher's reports ([Status]). Both are JSON: an
// argument of the command line, and a line of standard output.
//
// Goal: one definition for both programs. Non-goal: other readers, since the two programs always
// have the same version.
package repairconf
