// SPDX-License-Identifier: Apache-2.0

// Package testlog keeps what is logged, for tests that wait for it.
//
// # Goals
//
// A test waits for the line that reports an event, without sleeping or polling.
//
// # Non-goals
//
// It does not parse lines, and the product does not log with it.
package testlog
