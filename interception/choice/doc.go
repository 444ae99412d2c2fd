// SPDX-License-Identifier: Apache-2.0

// Package choice finds out which dataplane can put a plan into this machine's kernel: the first of some candidates, such as nftables and
// then iptables, that has all the plan needs.
//
//	Choose(ctx, plan, options, candidates...) ──▶ Choice (for a node: once, ahead of all pods)
//	New(candidates...) ──▶ Dataplane             (for a namespace: the first that can, when the plan is applied)
//
// What a plan needs of a kernel is not guessed from versions or lists of modules. [Choose] applies the plan's own rules in a network
// namespace that is made for this and thrown away, so that a kernel which lacks something says so as it would for a pod. When a part is
// refused, that part and all of its kind are left out, and the rest is tried, until all that is missing is known.
//
// A [Choice] says why: its text is a line for a log, and its name is what a node agent writes into its plugin's configuration, which then
// has nothing to probe.
//
// A forced choice is a list of one: nothing else is tried, and what is missing is an error.
//
// # Leftovers
//
// When a plan is applied by another dataplane than before, what the first one left goes once the new rules stand. Package standard makes
// candidates that know each other for this.
//
// # Goals
//
// The answer is the kernel's. No namespace that was there is touched, nothing is left behind, time is bounded, and an error that is not about
// a missing feature (no privileges, say) is never taken for one.
//
// # Non-goals
//
// What stands ahead of rules (links, addresses, sysctls, routes, policy rules) is the same with each dataplane, and is not tried. No answer is
// kept: whoever wants to ask once, asks once.
package choice
