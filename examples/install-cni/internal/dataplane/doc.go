// SPDX-License-Identifier: Apache-2.0

// Package dataplane finds out how the plugin is to write rules on this node: which of its two builds is installed, and what its
// configuration says, so that no pod's start has to try.
//
//	setting (auto, nftables, iptables) ──Chooser.Choose──▶ Choice (the plugin's setting, its build, why)
//
// # Goals
//
// The kernel is asked, once: the rules of two pods, one as they come and one that uses all there is, are put into a namespace that is
// thrown away (package interception/choice). A dataplane that is named is never replaced by another one. Whatever comes of it, there is an
// answer: a node where the plugin isn't installed would let pods start uncaptured, and one where it is refuses them with the reason.
//
// # Non-goals
//
// The programs of iptables that are tried are those of this process, and an image may have none. Those of the node, which
// the plugin starts, are not tried: whether they are there shows with the first pod. Only nsenter is looked for on the node.
package dataplane
