// SPDX-License-Identifier: Apache-2.0

// Package inplace finds the network namespace of a pod that runs, and puts the rules into it that the pod lacks, while it goes on running.
//
//		pod --Finder.Find--> open namespace --Observe--> Diff --Apply (sparing)--> Observe: no Diff --> record
//		       (Roots)          `--------------- one handle, never opened again ---------------'
//
//	  - A [Finder] follows every lead to a pod: what the plugin recorded, libcni's cache of results, and the cgroups of processes, which name
//	    pods and containers. A lead counts when it shows the pod's UID and leads to a namespace that has one of the pod's addresses, is neither
//	    the host's nor this process's own, and holds no process of another pod. All leads that count must lead to one namespace.
//	  - A [Repairer] observes and repairs what was found. The plan that it applies is the one that was recorded, made sparing
//	    ([interception.Plan.Sparing]), so that connections that live in the pod live on.
//	  - A [RefusalError] says why nothing was done, which leads were followed, and what the operator can do.
//
// # What is trusted
//
// No name: the paths of namespaces, the names of pods and process ids are used again. A namespace is opened once, by descriptor, and all
// that is checked, read and written goes by that. A process is looked at through the open directory of its own in proc, which never shows
// another process, whatever becomes of its id. Cgroups are the kernel's word; of a path that names two pods, as one may that a container
// with cgroups of its own has made, the outer one counts.
//
// # Goals
//
// The right namespace or none. What cannot be established is a refusal, and changes nothing.
//
// # Non-goals
//
// Nothing here decides which pods are to be repaired: package repair does. It calls no container runtime, which would need a client for each.
package inplace
