// SPDX-License-Identifier: Apache-2.0

// Package inplace finds the network namespace of a running pod, and restores the rules that the pod
// lacks while it keeps running.
//
//	pod --Finder.Find--> open namespace --Observe--> Diff --Apply (sparing)--> Observe --> record
//	       (Roots)             `-------- one handle, never opened again --------'
//
// These are the types:
//
//   - A [Finder] follows every lead to a pod: the plugin's record, libcni's cache of results, and
//     the cgroups of processes, which name pods and containers. A lead counts if it shows the pod's
//     UID, and ends in a namespace that has one of the pod's addresses, is neither the host's nor
//     this process's own, and holds no process of another pod. All leads that count must end in the
//     same namespace.
//   - A [Repairer] observes and repairs that namespace. It applies the recorded plan, made sparing
//     ([interception.Plan.Sparing]), so that the pod's connections survive.
//   - A [RefusalError] explains why nothing was done, which leads were followed, and what the
//     operator can do.
//
// # What is trusted
//
// No name is trusted: paths of namespaces, names of pods and process ids are reused. A namespace is
// opened once, and all checks, reads and writes use that descriptor. A process is examined through
// its open directory in proc, which never shows another process, even if the id is reused. Cgroups
// are trusted, since they come from the kernel. In a path that names two pods, the outer one
// counts: a container with cgroups of its own may have made the inner one.
//
// # Goals
//
// The right namespace, or no namespace. What cannot be established is refused, and changes nothing.
//
// # Non-goals
//
// Package inplace does not decide which pods to repair: package repair does. It calls no container
// runtime, which would need a client for each.
package inplace
