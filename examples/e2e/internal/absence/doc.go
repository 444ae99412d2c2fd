// SPDX-License-Identifier: Apache-2.0

// Package absence measures for how long something is missing that a program puts back, by the clock
// of the one who looks.
//
// # Goals
//
// A busy machine lets the program wait for a processor. Of each gap, the longest such wait of one
// of its threads is told apart, so that a program that is late by itself is found on any machine.
//
// # Non-goals
//
// It takes no time itself: whoever looks calls [Measure] with the times.
package absence
