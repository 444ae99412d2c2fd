// SPDX-License-Identifier: Apache-2.0

// Package interception models the netfilter state that sends a pod's traffic through a proxy. Data
// flows in one direction:
//
//	planner (package sidecar) --> Plan --Dataplane.Apply--> the kernel's tables
//	the kernel's tables --Dataplane.Observe--> State --Diff--> Drift
//
// The values:
//
//   - A [Pod] is the part of a Kubernetes Pod that matters here. [Facts] are what a planner must
//     know about the pod's network namespace. A planner receives both as arguments and looks up
//     neither.
//   - A [Plan] is a planner's result: an [Owner] and an ordered list of objects (tables with chains
//     and rules, sets). Every rule has a stable [RuleID], a constant reason (Why) and its
//     provenance (From, a [Source]: the annotation and the value that made it). [Build] makes a
//     plan; package sidecar makes one for a pod with a sidecar proxy.
//   - A [Dataplane] applies a plan to a network namespace, which it receives open and verified as a
//     [Netns]. Packages nftables and iptables each have one.
//   - A [State] is what the kernel really holds, in the model of plans. [Diff] lists how it differs
//     from a plan.
//
// This package also has the parsers for the values of annotations ([ParsePortSet],
// [ParsePrefixSet], [ParseGIDSet], [ParseInterfaceSet]) and the types that report problems with
// them ([ParseError], [Warning]).
//
// # Goals
//
// Plans are values: a program can build, compare, print and trace them (package trace) without root
// and on any operating system. What cannot work does not compile (DROP in a nat table, a port
// without a protocol, a group in place of a user). What types cannot catch, [Build] refuses with
// the position and the reason. Bad input is an error that names key, value and reason; it never
// becomes a silently uncaptured pod.
//
// # Non-goals
//
// This package touches no kernel, reads no environment, keeps no state and logs nothing. It imports
// the standard library only. It knows no mesh, nor which traffic a mesh captures.
package interception
