// SPDX-License-Identifier: Apache-2.0

// Package testlog keeps what is logged, for tests that wait for it.
//
// # Goals
//
// A test waits for the line that says what has happened, without sleeping and without asking again and again.
//
// # Non-goals
//
// Nothing of a line is understood, and it is no log of the product's.
package testlog
