// SPDX-License-Identifier: Apache-2.0

// Package interception turns what a pod asks of its service mesh into the netfilter state that sends the pod's
// traffic through a proxy. It does so with values, in one direction:
//
//		Pod --Dialect.Parse--> Redirect --PlanSidecar--> Plan --Dataplane.Apply--> kernel --Dataplane.Observe--> State
//		                                     (Facts)
//
//	  - A [Pod] is the small part of a Kubernetes Pod that matters here. [Decide] says whether it is to be captured, and why.
//	  - A [Dialect] is a mesh's vocabulary as data: which annotations, environment and ids mean what. Its Parse makes
//	  - a [Redirect], the mesh-neutral intent: which ports and prefixes are captured, and which identities are the proxy's.
//	  - [Facts] are what must be known about the namespace; they are an argument, never looked up.
//	  - A [Plan] is the result: an [Owner] and an ordered list of objects (tables with chains and rules, sets). Every rule has a
//	    stable [RuleID], a constant reason (Why) and its provenance (From: which annotation, with which value, made it).
//	  - A [Dataplane] applies a plan to a network namespace, held open and verified as a [Netns]: package nftables has one, package
//	    iptables another.
//	  - A [State] is what the kernel really holds, in the model of plans. [Diff] lists in what it differs from a plan.
//
// # Goals
//
// Plans are values: they are built, compared, printed and traced (package trace) without root and on any operating system.
// What cannot work does not compile (DROP in a nat table, a port without a protocol, a group where a user belongs), and what
// types cannot catch is refused by [Build] with the position and the reason. Bad input is an error that names key, value and
// reason; it never becomes a silently uncaptured pod.
//
// # Non-goals
//
// This package touches no kernel, reads no environment, keeps no state and logs nothing. It imports the standard library only.
// It does not know one mesh better than another: Istio's words are a table ([Istio]), and another mesh brings its own.
package interception
