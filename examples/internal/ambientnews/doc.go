// SPDX-License-Identifier: Apache-2.0

// Package ambientnews defines what the program node-ambient reports to the daemon about ambient
// mode: lines of JSON on its standard output.
//
// Non-goals: answering questions about pods, which the program does at its socket (package
// ambient/agent/event).
package ambientnews
