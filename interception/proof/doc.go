// SPDX-License-Identifier: Apache-2.0

// Package proof answers questions about all packets at once, where package trace answers about one:
// whether two plans do the same ([Equivalent]), whether rules let a packet bypass the proxy that
// plans capture ([Covers]), what a plan does and why ([Explain]), and which of its rules do nothing
// ([Lint]). The answers are exact, not sampled.
//
//	same, err := proof.Equivalent(old, changed, proof.Options{}) // yes, or no with an example packet
//	// for the rules that are in place between two plans:
//	safe, err := proof.Covers(between, []*interception.Plan{old, changed}, proof.Options{})
//	why, err := proof.Explain(plan, query, proof.Options{}) // a table: which rule decides which packets
//	dead, err := proof.Lint(plan, proof.Options{})          // rules that never match, and their shadows
//
// Each takes a plan or the state observed in a kernel ([interception.State]).
//
// # How
//
// The walk is that of package trace, with sets of packets instead of a packet. A set is a binary
// decision diagram over the bits that describe a packet at its start. A rule divides the set by its
// conditions; a mark that it writes, or an address that it translates, is substituted in all later
// conditions. Whether an address is in a live set is a free variable, unless the world lists the
// members. A thousand prefixes are one diagram, built directly.
//
// # Packets
//
// Equivalent and Explain are about a namespace ([Options]), and about every packet that
// [trace.Trace] accepts there: both families, TCP and UDP with any flags, from a socket with any
// user, group and mark, bound to a source or not, transparent or not, or from any link.
//
// A packet has no flow, or one that Trace finds by its addresses: in either direction, answered or
// not, seen from its opening or not, in any zone and with any mark, bound by nat to any other
// addresses, and with or without a socket at this end (transparent or not). Connection tracking may
// not know the flow. Its history need not be possible under the plan: another plan may have been in
// place before. Excluded are packets of a flow that come from the address that they go to, bindings
// of a flow to the addresses that its packets already have, and flows that nat has not settled,
// which no packet that came through leaves.
//
// # Outcomes
//
// Two packets end alike ([Same]) when their [trace.Outcome] has the same verdict and cause, and
//
//   - delivered: addresses and mark, and the same listener or socket took them (so a redirect's
//     target is compared; the original destination is that of the packet, and always the same);
//   - sent: addresses and mark, and the same link;
//   - refused: addresses and mark;
//   - always: what connection tracking keeps: whether there is a flow, its zone, its mark and its
//     translation. It decides about the following packets, so that two plans with the same outcomes
//     for all packets do the same to all connections.
//
// Logging, the path, and the ids and reasons of rules are not compared.
//
// # Unknown behaviour
//
// An opaque rule of a state may match every packet that reaches it and that has the family,
// protocol, ports, flags and addresses known from the rule, and may do anything. [Equivalent]
// answers No if packets that meet no opaque rule end differently; else, if any packet meets one, it
// answers [Unknown] and names the rule. [Explain] has a region for it, and [Lint] assumes that it
// may or may not match.
//
// A walk ends where the packet leaves the first namespace of the world. What leaves it for another
// one, by a wire or a tunnel ([trace.World.Crosses]), meets a rule called "beyond" that may do
// anything: what becomes of it is Unknown.
//
// # Live namespaces
//
// A state may have more than its objects:
//
//   - A dormant table is a table without rules; Equivalent and Explain know this.
//   - Any other deviation, and objects that form no valid plan, may do anything to any packet:
//     Equivalent answers [Unknown], Explain has a single region, and both name them. Lint has a
//     finding for each ([Deviates]), and ignores the foreign chains below.
//   - A foreign base chain counts unless it cannot change an outcome: its policy is accept, and it
//     and all chains that it leads to only accept, return and log; if the owner's jumps are in the
//     same chain, it may only log. Chains in hook forward count only if the namespace forwards:
//     then they may do anything to any packet. The other chains are walked through at the position
//     of their type and priority: accept ends that chain only, drop ends all, and the first chain
//     of type nat that translates decides. In the worlds and places of answers they are plans of
//     the owners others-0, others-1 and so on; the reason of each rule gives its place.
//   - A foreign rule that a plan could not have in that place is an opaque rule for the packets of
//     its family, addresses, ports and flags: a rule that was not decoded, a drop or reject where
//     tables of plans have none, a mark written in a chain of type filter in output, which causes
//     no new routing, and tproxy, which lets packets pass if it finds no socket.
//   - A foreign chain whose order is unknown may, like a deviation, do anything to any packet: a
//     chain with the same hook and priority as another one or as an entry of the owner, in a chain
//     that holds the owner's jumps, at the priorities of connection tracking and of nat, in
//     prerouting after nat, in input and postrouting after source nat, in ingress and egress.
//
// What was not observed does not exist: a state has foreign chains only if the dataplane was asked
// to read them, package nftables reads nothing of iptables-legacy, and package iptables nothing
// that its programs do not list.
//
// # Goals
//
// An answer is right or is an error: [ErrTooLarge] if a diagram would need more memory than
// allowed. trace.Trace confirms every No. Both walks agree on every packet: a difference is a
// defect. Tables, findings and counterexamples are the same on every run.
//
// # Non-goals
//
// The non-goals of package trace apply: rules mean what they mean in nf_tables, and a namespace
// forwards only if [trace.Namespace] Forwards or Sysctls say so (Lint examines Forward in any
// case). Packets are TCP or UDP. Equivalent is about the given world, with its links and listeners:
// plans that differ only for other links are alike.
package proof
