// SPDX-License-Identifier: Apache-2.0

// Package choice finds the dataplane that can apply a plan on this machine: the first of several
// candidates, such as nftables and then iptables, that supports everything the plan needs.
//
//	Choose(ctx, plan, options, candidates...) ──▶ Choice (for a node: once, before any pod)
//	New(candidates...) ──▶ Dataplane             (for a namespace: whenever a plan is applied)
//
// A plan's needs are not guessed from versions or lists of modules. [Choose] applies the plan's own
// rules in a temporary network namespace, so that a kernel without some feature refuses them as it
// would for a pod. After a refusal it leaves out the refused part and all of its kind, and tries
// the rest, until everything missing is known.
//
// A [Choice] includes the reason: its text is a line for a log. A node agent writes its name into
// the plugin's configuration, so that the plugin has nothing to probe.
//
// A forced choice is a list of one candidate: whatever it lacks is an error.
//
// # Leftovers
//
// When another dataplane than before applies a plan, it removes its predecessor's rules once the
// new ones are in place. The candidates of package standard know each other for this. They do not
// know a program's own dataplane: what it has applied stays until Remove.
//
// # Goals
//
// The answer is the kernel's. Choose touches no existing namespace, leaves nothing and takes
// bounded time. It never mistakes another error (missing privileges, say) for a missing feature.
//
// # Non-goals
//
// Links, addresses, sysctls, routes and policy rules are the same in each dataplane and are not
// tried. The package caches no answer: a caller that wants to ask once stores the Choice.
package choice
