// SPDX-License-Identifier: Apache-2.0

// Package interception is the model of the netfilter state that sends a pod's traffic through a proxy. It describes that state with values,
// in one direction:
//
//		planner (package sidecar) --> Plan --Dataplane.Apply--> kernel --Dataplane.Observe--> State --Diff--> Drift
//
//	  - A [Pod] is the small part of a Kubernetes Pod that matters here, and [Facts] are what a planner must know about the pod's network
//	    namespace. Both are arguments of a planner, never looked up.
//	  - A [Plan] is what a planner makes: an [Owner] and an ordered list of objects (tables with chains and rules, sets). Every rule has a
//	    stable [RuleID], a constant reason (Why) and its provenance (From, a [Source]: which annotation, with which value, made it).
//	    [Build] makes a plan, and so does package sidecar from what a pod with a proxy of its own asks for.
//	  - A [Dataplane] applies a plan to a network namespace, held open and verified as a [Netns]: package nftables has one, package
//	    iptables another.
//	  - A [State] is what the kernel really holds, in the model of plans. [Diff] lists in what it differs from a plan.
//
// Whoever reads annotations finds the parsers of ports, networks, ids and interfaces here ([ParsePortSet], [ParsePrefixSet], [ParseGIDSet],
// [ParseInterfaceSet]), and [ParseError] and [Warning] to report with.
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
// It knows no mesh, and not which traffic a mesh captures.
package interception
