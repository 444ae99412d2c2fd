// SPDX-License-Identifier: Apache-2.0

// Package installed keeps what is installed on the node right, piece by piece, and reports the
// state of each.
//
// Package upkeep decides when a piece looks, and how long it waits: at the start, after a change in
// one of its directories, once more after it wrote something, after failures, and every ten
// minutes. The pieces work at the same time: one that hangs, fails or panics does not stop the
// others. Their order matters only if one needs the result of another: the entry in the CNI
// configuration waits for binary and kubeconfig.
//
// Non-goals: knowing what a piece does, and identifying the other program of a fight.
package installed
