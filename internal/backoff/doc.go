// SPDX-License-Identifier: Apache-2.0

// Package backoff says how long to wait between attempts: after failures, and between restores of what another program keeps undoing.
//
// Non-goals: waiting, and chance; a node's daemon has nobody to be out of step with.
package backoff
