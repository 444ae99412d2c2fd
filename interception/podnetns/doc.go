// SPDX-License-Identifier: Apache-2.0

// Package podnetns finds the network namespaces of the pods that run on a node, and verifies that
// each is the pod's.
//
//	Pod --Finder.Find--> open namespace, and the leads that show whose it is
//	      (Roots)
//
// A [Finder] follows every lead to a pod: the plugin's record, libcni's cache of results, and the
// cgroups of processes, which name pods and containers. A lead counts if it shows the pod's UID,
// and ends in a namespace that has one of the pod's addresses and is neither the host's nor this
// process's own. Cgroups that name no pod may show the id of one of its containers instead, or of
// its sandbox, which libcni's cache knows. All leads that count must end in the same namespace, and
// no process of another pod may be in it. Otherwise a [RefusalError] has the [Obstacle], the leads,
// and what the operator can do.
//
// [Finder.FindAll] does this for all pods of a node in one pass over its processes. [Finder.Verify]
// examines a namespace that another program has handed over, and searches for nothing.
//
// [Records] answer without a namespace: what the plugin has recorded of a pod.
//
// # What is trusted
//
// No name is trusted: paths of namespaces, names of pods and process ids are reused. A namespace is
// opened once, and the caller uses that descriptor. A process is examined through its open
// directory in proc, which never shows another process, even if the id is reused. Cgroups are
// trusted, since they come from the kernel. In a path that names two pods, the outer one counts: a
// container with cgroups of its own may have made the inner one.
//
// # Goals
//
// The right namespace, or no namespace. What cannot be established is refused.
//
// # Non-goals
//
// It changes nothing in a namespace, and knows neither Kubernetes nor what is captured. It calls no
// container runtime, which would need a client for each.
package podnetns
