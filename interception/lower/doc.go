// SPDX-License-Identifier: Apache-2.0

// Package lower defines the layout of a plan in nf_tables and the order in which the kernel
// evaluates its parts. The dataplanes, the renderer, the trace and the proof share it, so that all
// of them mean the same rules in the same order.
//
// [Chains] lays out a plan in one table, named after the owner; removing the table removes all of
// the plan's rules. [SetName], [Intervals] and [Networks] define the layout of its sets:
//
//	table inet istio-cni
//	  set set-NAME            a Set: an interval set of addresses
//	  set set-NAME/BITS       a Set of many networks of that length, by their first addresses
//	  chain hook.TABLE.HOOK   a base chain for each table and hook with entries: only their jumps
//	  chain TABLE-CHAIN       an owned chain
//
// No name is a keyword of nft, so that nft can load the output of "nft list ruleset".
//
// [StandardBase] gives the place of a table's base chain in a hook, in nf_tables and iptables
// alike. [Schedule] lists what the kernel does in a hook with several plans: base chains by
// priority, connection tracking, and address translation. [ParseComment] parses the comment of a
// rule in the kernel.
//
// # Goals
//
// Each fact about netfilter that more than one package needs is stated here once. Everything is a
// value: the same plan gives the same layout.
//
// # Non-goals
//
// Nothing here writes text or netlink messages, or reads from a kernel. Package trace defines what
// a rule does with a packet.
package lower
