// SPDX-License-Identifier: Apache-2.0

// Package nftables is the [interception.Dataplane] that speaks to the kernel's nf_tables by netlink. No program on the host is
// needed, none is started, and IPv4 and IPv6 are programmed together.
//
// All of an owner's plan stands in one table of family inet, laid out as package render says. The table is the owner's alone: what
// anybody else put into it goes with the next Apply or Remove; everything outside of it is left alone.
//
// [Dataplane.Apply] sends one transaction that only adds, and that the kernel refuses as a whole when the owner's table is there
// already. Then a second one deletes the table and adds all of it anew. Either is atomic: at no instant is a packet judged
// by half a plan. The first one is what a new pod gets, and it is an order of magnitude cheaper, because deleting makes the
// kernel wait until no packet uses the old rules any more.
//
// An error that the kernel has with a part of the plan is an [*interception.ApplyError] that names the rule, the reason why it is
// there, and the kernel's answer, and nothing has changed then.
//
// # Needs
//
// Linux 5.2 or later with nf_tables, family inet and, for redirection, nat (modules nf_tables, nft_chain_nat, nft_redir);
// what is missing is named by an error that wraps [interception.ErrUnsupported]. Entering the namespace takes CAP_SYS_ADMIN, and the
// transaction CAP_NET_ADMIN, in the user namespace that owns it. On other systems than Linux, [New] returns ErrUnsupported.
//
// # Goals
//
// The default plan into a fresh namespace within a millisecond; tens of thousands of prefixes without losing one; no
// error that is swallowed, guessed at or reported without its rule.
//
// # Non-goals
//
// Rules have no counters: they would cost every packet. The package does not compare before it writes, and keeps no state between
// calls.
package nftables
