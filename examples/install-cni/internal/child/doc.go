// SPDX-License-Identifier: Apache-2.0

// Package child runs a program of ours that works for the daemon as a process of its own.
//
// The program reports lines on its standard output, and logs JSON lines on its standard error. It
// ends when its standard input does, so that it never outlives the daemon, however the daemon ends.
//
// Goals: the daemon's log has the program's, and the error about its end has what it logged last as
// an error. Non-goals: starting the program again, which package parts does, and what the lines
// mean.
package child
