// SPDX-License-Identifier: Apache-2.0

// Package inplace restores the rules that a running pod lacks in its network namespace, while the
// pod keeps running.
//
//	pod --Finder.Find--> open namespace --Observe--> Diff --Apply (sparing)--> Observe --> record
//	                     `-------- one handle, never opened again --------'
//
// A [Repairer] observes and repairs the namespace that a [podnetns.Finder] has found. It applies
// the recorded plan, made sparing ([interception.Plan.Sparing]), so that the pod's connections
// survive. For an operator who grants neither capabilities nor the node's proc file system,
// [Records] observe pods by what the plugin recorded, and repair none.
//
// # Goals
//
// The right namespace, or no namespace: a pod whose namespace is not known beyond doubt is left
// alone, and a refused repair changes nothing.
//
// # Non-goals
//
// Package inplace does not decide which pods to repair: package repair does.
package inplace
