// SPDX-License-Identifier: Apache-2.0

// Package tally notices changes of which the kernel sends no notice: it counts, again and again,
// what other programs may change.
//
// The caller counts before it looks at what it keeps right. If a later count differs from that one,
// something has changed since, and the caller looks again. The caller's own changes show as well.
// Where there is nothing to count, nothing is counted until the caller has looked again.
//
// # Goals
//
// A change shows within a second where a count takes a few milliseconds. Counting takes about a
// hundredth of the time.
//
// # Non-goals
//
// Changes that are undone before the next count.
package tally
