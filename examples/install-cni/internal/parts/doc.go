// SPDX-License-Identifier: Apache-2.0

// Package parts runs the parts of a daemon concurrently, and restarts each by itself when it fails.
//
// # Goals
//
// No part waits for another, and no failure affects another part: a part that fails, ends or panics
// is restarted after a pause. The pause grows with each failure in a row, from a tenth of a second
// to a minute, and is partly random, so that the daemons of a cluster do not act at the same
// instant. A health.State has the state of each part. While nothing fails there is no timer.
//
// # Non-goals
//
// An order among parts, and messages between them. A part that does not end when its context does
// keeps the daemon from ending.
package parts
