// SPDX-License-Identifier: Apache-2.0

// Package tally notices changes of which the kernel sends no notice: it counts, again and again,
// what other programs may change.
//
// The caller counts before it looks at what it keeps right, and after it has changed something. If
// a later count differs from the last of these, something has changed since, and the caller looks
// again. Where there is nothing to count, nothing is counted until the caller has looked again.
//
// # Goals
//
// A change shows within a second where a count takes a few milliseconds. A count that takes less
// than 30 ms costs a hundredth of the time at most, and none is later than 3 s after the one
// before.
//
// # Non-goals
//
// Changes that are undone before the next count.
package tally
