// SPDX-License-Identifier: Apache-2.0

// Package watch watches directories for changes, and goes on when one is removed and made again, appears late, or can't be watched for a
// while.
//
// Non-goals: watching what is in the directories' own directories, and deciding which change matters.
package watch
