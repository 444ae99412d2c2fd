// SPDX-License-Identifier: Apache-2.0

// Package footprint returns a daemon's memory to the system when its work is over.
//
// Goal: a process that waits for days for the next event uses only what waiting needs. Start-up and
// waves of requests read most of a program's file and create garbage; neither is needed again soon.
// [Trim] returns both to the system, and [Trimmer] calls it once after each wave. A Trimmer also
// has garbage collected in shorter pauses, so that the next request finds room. Non-goal: trimming
// during work, because the pages in use would have to be read again.
package footprint
