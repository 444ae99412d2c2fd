// SPDX-License-Identifier: Apache-2.0

// Package upkeep decides when to look at things that others may change, and how long to wait between attempts.
//
// # Goals
//
// A [Task] is looked at when it begins, at once when a file that concerns it changes, again when something was written (what has been
// verified counts, not what has been done), after failures with growing pauses, and from time to time although nothing has changed.
// Another program that changes files without end has each task looked at fifty times a second, and no more often.
// What another program undoes is restored at once, and in a long fight twice a second ([Paced]). A task is told when a fight
// begins, once a minute while it goes on, and when it is over. While everything is right, nothing runs but one slow timer. Several
// tasks share one watch of the kernel's, and none waits for another one's pass.
//
// What this stands on serves others, too: [Watches] of directories, which go on when one is removed and made again, appears late or can't
// be watched for a while; pauses after failures ([Series]); and the pace of what another program keeps undoing ([Bucket], [Streak]).
//
// # Non-goals
//
// Watching what is in the directories' own directories. Chance in pauses: a node's daemon has nobody to be out of step with. What is to be
// done, and telling people about it: that is a task's own. Starting a task again when it panics.
package upkeep
