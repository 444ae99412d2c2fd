// SPDX-License-Identifier: Apache-2.0

// Package upkeep decides when to look at things that other programs may change, and how long to
// wait between attempts.
//
// # Goals
//
// A [Task] is looked at when it begins, at once when a file that concerns it changes, again when
// something was written (to verify it), after failures with growing pauses, and from time to time
// although nothing has changed. If another program changes files continuously, each task is looked
// at fifty times a second, and no more often. What another program undoes is restored at once, and
// in a long fight twice a second ([Paced]). A task learns when a fight begins, once a minute while
// it lasts, and when it is over. While everything is right, only one slow timer runs. Several tasks
// share one watch of the kernel's, and no task waits for another one's pass.
//
// Other packages may use the parts: [Watches] of directories, which continue when a directory is
// removed and recreated, appears late or cannot be watched for a while; pauses after failures
// ([Series]); and the pace of restores ([Bucket], [Streak]).
//
// # Non-goals
//
// Watching subdirectories. Random pauses: a node's daemon is alone on its node. The work and its
// reports, which belong to the tasks. Restarting a task that panics.
package upkeep
