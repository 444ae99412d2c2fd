// SPDX-License-Identifier: Apache-2.0

// Package answers serves requests for the pods of one node, from the watch of package nodepods.
//
// # Goals
//
// No wake-up while nothing happens: the connection is HTTP/1.1, which needs no pings, and the
// kernel detects that the other side is gone.
//
// An answer is never older than it seems: until all pods have been seen once, and for an unknown
// pod while the watch is broken, the answer is podsource.ErrNotReady, so that the client uses
// another source.
//
// # Non-goals
//
// Waiting for pods, and pods of other nodes.
package answers
