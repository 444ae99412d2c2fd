// SPDX-License-Identifier: Apache-2.0

// Package parts runs the parts of a daemon side by side, and starts each again by itself when it fails.
//
// # Goals
//
// No part waits for another, and none takes another down with it: a part that fails, ends or panics is started again after a pause that
// grows with each failure in a row, from a tenth of a second to a minute, and varies, so that the daemons of a cluster don't do the same
// at the same instant. How each part is doing is in a health.State. While nothing fails there is no timer.
//
// # Non-goals
//
// An order among parts, and messages between them. A part that doesn't end when it is told to keeps the daemon from ending.
package parts
