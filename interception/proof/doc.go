// SPDX-License-Identifier: Apache-2.0

// Package proof answers questions about all packets at once, where package trace answers about one:
// whether two plans do the same ([Equivalent]), whether rules let anything past the proxy that
// plans capture ([Covers]), what a plan does and why ([Explain]), and which of its rules do nothing
// ([Lint]). The answers are exact, not sampled.
//
//	same, err := proof.Equivalent(old, changed, proof.Options{}) // yes, or no with a packet to show for it
//	safe, err := proof.Covers(between, []*interception.Plan{old, changed}, proof.Options{}) // for what stands between two plans
//	why, err := proof.Explain(plan, query, proof.Options{})      // a table of who decides about what
//	dead, err := proof.Lint(plan, proof.Options{})               // rules that can never match, and what shadows them
//
// Each takes a plan or what was observed in a kernel ([interception.State]).
//
// # How
//
// The walk is that of package trace, with sets of packets in place of a packet. A set is a binary
// decision diagram over the bits that a packet begins with; a rule divides it by its conditions,
// and a mark that it writes, or an address that it translates, is a substitution in what is asked
// from there on. Whether an address is in a live set is a free variable, unless the world gives its
// members. A thousand prefixes are one diagram, built as it stands.
//
// # Packets
//
// Equivalent and Explain are about a namespace ([Options]), and about every packet that
// [trace.Trace] takes there: both families, TCP and UDP with any flags, from a socket with any
// user, group and mark, bound to a source or not, transparent or not, or from any link.
//
// A packet has no flow, or one that Trace finds by its addresses: in either direction, answered or
// not, seen from its opening or not, in any zone and with any mark, bound by nat to any other
// addresses, and with a socket at this end (transparent or not) or none. It may be one that
// connection tracking knows nothing of. Whether the history of a flow is possible under the plan is
// not asked: another plan may have been there before. Left out are packets of a flow that come from
// where they go to, or that it is bound to the addresses which they have already, and flows that
// nat has not settled, which no packet leaves behind that came through.
//
// # Outcomes
//
// Two packets end alike ([Same]) when their [trace.Outcome] has the same verdict and cause, and
//
//   - delivered: addresses and mark, and the same listener or socket took them (so a redirect's
//     target is compared; the original destination is that of the packet, and always the same);
//   - sent: addresses and mark, and the same link;
//   - refused: addresses and mark;
//   - always: what connection tracking keeps of them, which is whether there is a flow, its zone,
//     its mark and its translation. It decides about the packets that follow, so that two plans
//     with the same outcomes for all packets do the same to all connections.
//
// What is logged is not compared, nor the path, nor the ids and reasons of rules.
//
// # What is not known
//
// An opaque rule of a state may match every packet that comes to it and that has the family,
// protocol, ports, flags and addresses which it is known to ask for, and do anything. [Equivalent]
// says no when packets which meet none end differently; else, if any packet meets one, it says
// [Unknown] and names the rule. [Explain] has a region for it, and [Lint] takes it for one that may
// match or not.
//
// # Live namespaces
//
// Of what a state has beside its objects
//
//   - a dormant table is a table without rules, which Equivalent and Explain know;
//   - any other deviation, and objects that make no valid plan, may do anything to any packet:
//     Equivalent says [Unknown], Explain has a single region, and both name them. Lint has a
//     finding for each ([Deviates]), and takes nothing of what follows in;
//   - a chain of others that hangs on a hook counts unless it can change nothing: its policy is
//     accept, and it and all chains that it leads to do no more than to accept, to return and to
//     log, and in a chain that the owner's jumps stand in too, no more than to log. Chains in hook
//     forward don't count either, unless the namespace forwards: then they may do anything to any
//     packet. The others are walked through where their type and priority put them: to accept ends
//     that chain alone, to drop ends all, and the first of all chains of type nat that translates
//     decides. They are plans of owners others-0, others-1 and so on in the worlds and places of
//     answers; the reason of each rule says where it stands;
//   - a rule of theirs that a plan could not have in that place is an opaque one for the packets of
//     its family, addresses, ports and flags: what was not decoded, a drop or reject where tables
//     of plans have none, a mark written in a chain of type filter in output, after which nothing
//     is routed again, and tproxy, which lets pass what finds no socket;
//   - a chain may do anything to any packet, as a deviation may, when it is not known in what order
//     it is asked: with the same hook and priority as another one or as an entry of the owner's, in
//     a chain that the owner's jumps stand in, at the priorities of connection tracking and of nat,
//     in prerouting behind nat, in input and postrouting behind the nat of sources, in ingress and
//     egress.
//
// What was not observed is not there: others' chains are in a state only when the dataplane was
// told to read them, package nftables reads nothing of iptables-legacy, and package iptables
// nothing that its programs don't list.
//
// # Goals
//
// An answer is right or is an error: [ErrTooLarge] when a diagram would need more memory than was
// granted. No is confirmed by trace.Trace before it is given. Both walks agree on every packet:
// where they differ, it is a defect. Tables, findings and counterexamples are the same on every
// run.
//
// # Non-goals
//
// All that is a non-goal of package trace is one here: rules mean what they mean in nf_tables,
// packets are TCP or UDP, and nothing is forwarded unless [trace.Namespace] Forwards says so (Lint
// looks at Forward in any case). Equivalent is about the world that it is given, with its links and
// listeners: plans that differ for other links only are alike.
package proof
