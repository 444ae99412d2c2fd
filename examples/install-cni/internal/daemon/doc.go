// SPDX-License-Identifier: Apache-2.0

// Package daemon runs the installer's parts, which keep the node right, and reports their state.
//
// Package upkeep decides when a part looks, and how long it waits: at the start, after a change in
// one of its directories, once more after it wrote something, after failures, and every ten
// minutes. The parts work at the same time: one that hangs, fails or panics does not stop the
// others. Their order matters only if one needs the result of another: the entry in the CNI
// configuration waits for binary and kubeconfig.
//
// Non-goals: knowing what a part does, and identifying the other program of a fight.
package daemon
