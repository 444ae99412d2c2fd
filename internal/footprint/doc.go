// SPDX-License-Identifier: Apache-2.0

// Package footprint makes a daemon small again when its work is over.
//
// Goal: a process that waits for days for the next event holds what it needs for waiting. Start-up and waves of requests read most
// of a program's file and make garbage; neither is needed again soon. [Trim] gives both back, and [Trimmer] says when: once after
// each wave. Non-goal: doing so while work goes on, as what is needed has to be read anew.
package footprint
