// SPDX-License-Identifier: Apache-2.0

// Package footprint makes a daemon small again once it has started.
//
// Goal: a process that waits for days for the next event holds what it needs for waiting. Start-up reads most of a program's file and makes
// garbage; neither is needed again soon. Non-goal: doing so again and again, as what is needed has to be read anew.
package footprint
