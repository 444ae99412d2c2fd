// SPDX-License-Identifier: Apache-2.0

// Package lower says how a plan is laid out in nf_tables and when the kernel asks which part of it.
// The dataplanes, the renderer, the trace and the proof share it, so that all of them mean the same
// rules in the same order.
//
// [Chains] lays a plan out in one table, named after the owner; removing the table removes all of
// the plan's rules. [SetName], [Intervals] and [Networks] say what its sets look like:
//
//	table inet istio-cni
//	  set set-NAME            a Set: an interval set of addresses
//	  set set-NAME/BITS       a Set of many networks of that length: their first addresses, which rules ask for after a mask
//	  chain hook.TABLE.HOOK   a base chain for each table and hook that has entries, holding only their jumps
//	  chain TABLE-CHAIN       an owned chain
//
// No name is a word of nft's language, so that what "nft list ruleset" prints can be loaded back.
//
// [StandardBase] says how the base chain of a table hangs on a hook, in nf_tables and iptables
// alike. [Schedule] lists what the kernel does in a hook where several plans stand: base chains by
// priority, connection tracking, and address translation. [ParseComment] reads the comment that a
// rule has in the kernel.
//
// # Goals
//
// Each fact about netfilter that more than one package needs is stated here once. Everything is a
// value: the same plan gives the same layout.
//
// # Non-goals
//
// Nothing here writes text or netlink messages, and nothing reads a kernel. What a rule does with a
// packet is the business of package trace.
package lower
