// SPDX-License-Identifier: Apache-2.0

// Package daemon decides when the installer's parts look at the node again.
//
// A part runs at the start, when something changed in a directory that concerns it, and once more after it wrote something, to see that
// what it wrote is what is there. Our own writes come back as events too; they end in a run that finds nothing to do. While nothing
// happens nothing runs; the only timer, save after a failure, has everything looked at every ten
// minutes.
//
// A run that writes is never delayed, except when somebody keeps undoing it: after ten restores in quick succession the pauses between
// them double, up to half a minute. A failed run is tried again after a second, then two, up to a minute, and at once when something
// changes.
//
// Non-goals: knowing what a part does, and finding out who the other one is.
package daemon
