// SPDX-License-Identifier: Apache-2.0

// Package dataplane determines how the plugin writes rules on this node: which of its two builds is
// installed, and what its configuration contains, so that no pod's start has to try.
//
//	setting (auto, nftables, iptables) ──Chooser.Choose──▶ Choice (setting, build, why)
//
// # Goals
//
// The kernel is tried until the answer is known, usually once: the rules of two pods, a usual one
// and one that uses every setting, are applied to a namespace that is thrown away (package
// interception/choice). A trial that fails for another reason, such as a lack of memory, is no
// answer. A named dataplane is never replaced by another one. There is always an answer: without
// the plugin a node would let pods start uncaptured, and with it pods are refused with a reason.
//
// # Non-goals
//
// The iptables programs that are tried are those of this process, and an image may have none. Those
// of the node, which the plugin starts, are not tried: the first pod shows whether they exist. Only
// nsenter is looked for on the node.
package dataplane
