// SPDX-License-Identifier: Apache-2.0

// Package fakecluster is an API server with only pods, the taints of nodes and the metadata of
// namespaces and ConfigMaps, for tests and benchmarks of their clients.
//
// Goals: lists and watches with a field selector for the node, initial events of a watch on
// request, bookmarks, single pods; as many pods as a large cluster has, as large as real ones;
// labels, deletions and evictions with preconditions, and events; outages, refusals and slowness on
// demand. Non-goals: everything else of Kubernetes.
package fakecluster
