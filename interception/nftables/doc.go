// SPDX-License-Identifier: Apache-2.0

// Package nftables is the [interception.Dataplane] that speaks to the kernel's nf_tables by netlink. No program on the host is
// needed, none is started, and IPv4 and IPv6 are programmed together.
//
// All sets and rules of an owner's plan stand in one table of family inet, laid out as package render says. The table is the owner's
// alone: what anybody else put into it goes with the next Apply or Remove; everything outside of it is left alone.
//
// [Dataplane.Apply] looks whether the owner's table is there, which is one question. Where it is not, a plan of rules is one transaction
// that only adds, and that the kernel refuses as a whole when the table came meanwhile; this is what a new pod gets. Where it is, all
// that stands is read as by Observe. When it is the plan, word for word, nothing is written; otherwise a transaction deletes the table and
// adds all of it anew, whatever differs. Either transaction is atomic: at no instant is a packet judged by half a plan. One that only adds
// is an order of magnitude cheaper, because deleting, and being refused, makes the kernel wait until no packet uses the old rules any
// more.
//
// An error that the kernel has with a part of the plan is an [*interception.ApplyError] that names the rule, the reason why it is
// there, and the kernel's answer, and nothing has changed then.
//
// # Live sets
//
// A live set that the table has, with the same type, keeps its members when the plan is replaced: they are read, and written again by the
// transaction that deletes them. It names the generation of the rules that they were read at, so that the kernel refuses it when anybody
// edits a set in between (NFNL_BATCH_GENID), and it is made anew.
//
// # Links, addresses, sysctls, routes and policy rules
//
// They come before the rules, in the order of the plan, and are taken back when a later step fails. When the rules stand, what the
// owner had and the plan has not is taken away in reverse order. So at each instant all that the standing rules count on is there.
//
// Whose they are is recorded with them: routes, policy rules and addresses carry a protocol number (rtm_protocol, FRA_PROTOCOL, IFA_PROTO)
// that follows from the owner's name or is set by [Options], links the alias "meshcni OWNER". The sysctls of the plan, with what each was
// before, stand in the set "ledger" of the owner's table, a comment for each; so do the addresses of the plan that were there before and,
// on kernels before 5.18, which forget an address's protocol, those that the owner has added. So this knowledge lives exactly as long as
// the namespace, is written by the same transactions as the rules, ahead of the first sysctl, and survives the death of this process at any
// point. A sysctl gets its value back only while it still has the plan's.
//
// An address that is there already is left alone, and is not the owner's. A link of the same name, a route of somebody else in a
// table of the plan's own or to the same destination in the main table, and a policy rule of somebody else with the same family and
// priority are errors before anything is written.
//
// Calls on one namespace that need more than the first transaction wait for each other, also between processes, by a lock on the
// namespace itself (flock(2)).
//
// The error about a refused link, route or policy rule has the kernel's explanation ("IPv6 is disabled on nexthop device") beside its number
// where the program has set EnableErrorMessageReporting of github.com/vishvananda/netlink/nl, which is one switch for a process. Package
// plugin sets it.
//
// # Rules of another dataplane
//
// What a dataplane of package iptables has left of the owner is found and taken away when [Options.Predecessor] is set, as package choice does:
// behind the first transaction of a new pod, without a program where nothing is left; else under the lock, when the plan's own rules stand
// and ahead of what is stale beside them. What that dataplane remembers of the namespace is taken over.
//
// # Observing
//
// [Dataplane.Observe] follows the expressions of each rule as the kernel does, with what is known of the registers in place of their
// contents, and so says what a rule does whoever wrote it, this package or nft, and in whichever of several forms. What it does not
// understand in full ends there: the conditions before are kept, and the rest becomes the rule's Opaque action. Where one rule of a plan is
// several in the kernel, these are taken together when that rule would become exactly these again; which rules may belong together, and
// which of two spellings the plan had, their comments hint at. With [Options].Foreign the chains of everybody else are read as well.
//
// The chains of the table are known by their names, and by nothing else; what a base chain is, its hook, type, priority and policy say.
// What plans have no words for is a deviation: a policy, a dormant table, a set with timeouts, a chain or set of another name, a route with
// a metric. Objects that no rule of the table refers to, flowtables among them, and what iptables-legacy has are not looked at.
//
// # Needs
//
// Linux 5.2 or later with nf_tables, family inet and what the plan uses of the modules nft_chain_nat, nft_redir, nft_nat, nft_ct,
// nft_tproxy, nft_reject_inet and nft_log; what is missing is named by an error that wraps [interception.ErrUnsupported]. What no kernel
// of these can do, [Dataplane.Supports] says: to copy single bits between a packet's mark and its connection's. Entering the namespace
// takes CAP_SYS_ADMIN, and the rest CAP_NET_ADMIN, in the user namespace that owns it. On other systems than Linux, [New] returns
// ErrUnsupported.
//
// # Goals
//
// The default plan into a fresh namespace within a millisecond; tens of thousands of prefixes without losing one; no
// error that is swallowed, guessed at or reported without its rule.
//
// # Non-goals
//
// Rules have no counters: they would cost every packet. The package does not mend single rules: what differs is written anew as a whole. It
// keeps no state between calls but what stands in the kernel.
package nftables
