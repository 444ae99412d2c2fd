// SPDX-License-Identifier: Apache-2.0

// Package fakecluster is an API server with nothing but pods, the taints of nodes and the metadata
// of ConfigMaps, for tests and benchmarks of those who watch and change them.
//
// Goals: lists and watches with a field selector for the node, the initial events of a watch that
// asks for them, bookmarks, single pods; as many pods as a large cluster has, as large as real
// ones; labels, deletions and evictions with preconditions, and events; outages, refusals and
// slowness on demand. Non-goals: everything else of Kubernetes.
package fakecluster
