// SPDX-License-Identifier: Apache-2.0

// Package absence measures for how long something is missing until a program restores it, by the
// clock of the observer.
//
// # Goals
//
// On a busy machine the program may wait for a processor. The longest such wait of one of its
// threads is accounted for separately in each gap, so that a program that is itself too slow is
// found on any machine.
//
// # Non-goals
//
// The package reads no clock: the observer calls [Measure] with the times.
package absence
