// SPDX-License-Identifier: Apache-2.0

// Package nodepods knows the pods of one node, by a client-go informer.
//
// # Goals
//
// Little memory: only the pods of the node are asked for (field selector spec.nodeName), only what decides about traffic is decoded, and of
// that a bounded amount is kept for each pod. No type of Kubernetes' API is linked but its metadata. No wake-up while nothing happens:
// the connection is HTTP/1.1, which needs no pings, and the kernel notices when the other side is gone.
//
// An answer is never older than it seems: until all pods have been seen once, and for a pod that isn't known while the watch is broken, the
// answer is podsource.ErrNotReady, so that another source is asked.
//
// # Non-goals
//
// Waiting for pods, and pods of other nodes.
package nodepods
