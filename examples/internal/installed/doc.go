// SPDX-License-Identifier: Apache-2.0

// Package installed is what node-watcher says to the daemon about the object that only the end of the installation removes: a line of JSON on
// its standard output.
//
// Goal: one place that both are built with. Non-goal: other readers; the two programs are always of one version.
package installed
