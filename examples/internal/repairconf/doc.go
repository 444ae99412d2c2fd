// SPDX-License-Identifier: Apache-2.0

// Package repairconf is what the daemon and the process that watches the node's pods say to each other about repair: the daemon what is to
// be done ([Config]), the other how that goes ([Status]). Both are JSON: a word of a command line, and a line of standard output.
//
// Goal: one place that both are built with. Non-goal: anybody else who reads it; the two are always of one version.
package repairconf
