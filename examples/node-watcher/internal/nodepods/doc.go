// SPDX-License-Identifier: Apache-2.0

// Package nodepods knows the pods of one node, through a client-go informer.
//
// # Goals
//
// Little memory: only the node's pods are requested (field selector spec.nodeName), only what
// decides about traffic is decoded, and of that a bounded amount is kept for each pod. Of the types
// of Kubernetes' API, only the metadata's are linked. No wake-up while nothing happens: the
// connection is HTTP/1.1, which needs no pings, and the kernel detects that the other side is gone.
//
// An answer is never older than it seems: until all pods have been seen once, and for an unknown
// pod while the watch is broken, the answer is podsource.ErrNotReady, so that the client uses
// another source.
//
// # Non-goals
//
// Waiting for pods, and pods of other nodes.
package nodepods
