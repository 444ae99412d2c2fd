// SPDX-License-Identifier: Apache-2.0

// Package backoff turns events that come one after the other into pauses: failures, and restores of what somebody else keeps undoing.
//
// Non-goals: waiting, and chance; a node's daemon has nobody to be out of step with.
package backoff
