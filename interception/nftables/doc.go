// SPDX-License-Identifier: Apache-2.0

// Package nftables is the [interception.Dataplane] that programs the kernel's nf_tables by netlink.
// It needs no program on the host, starts no process, and programs IPv4 and IPv6 together.
//
// All sets and rules of an owner's plan are in one table of family inet, with the layout of package
// lower. The table belongs to the owner alone: the next Apply or Remove deletes what other programs
// have put into it. Everything outside the table is left alone.
//
// [Dataplane.Apply] first asks for the owner's table, with one request. If the table does not
// exist, a plan of rules is one transaction that only adds; the kernel refuses it as a whole if the
// table was made meanwhile. A new pod takes this path. If the table exists, Apply reads everything
// as Observe does. If that is the plan, word for word, it writes nothing; otherwise a transaction
// deletes the table and adds all of it again, whatever differs. Either transaction is atomic: no
// packet is ever judged by half a plan. One that only adds is an order of magnitude cheaper,
// because after a deletion or a refusal the kernel waits until no packet uses the old rules any
// more.
//
// When the kernel refuses a part of the plan, the error is an [*interception.ApplyError] that names
// the rule, its reason in the plan, and the kernel's answer. Nothing has changed then.
//
// # Live sets
//
// A live set that the table has with the same type keeps its members when the plan is replaced:
// Apply reads them, and the transaction that deletes them adds them again. The transaction names
// the generation of the rules in which they were read. If another program edits a set in between,
// the kernel refuses the transaction (NFNL_BATCH_GENID), and Apply repeats it.
//
// # Links, addresses, sysctls, routes and policy rules
//
// They are made before the rules, in the order of the plan, and undone when a later step fails.
// Once the rules are in place, what the owner had and the plan lacks is removed in reverse order.
// So the rules in place always have everything that they rely on.
//
// Their owner is recorded with them: routes, policy rules and addresses carry a protocol number
// (rtm_protocol, FRA_PROTOCOL, IFA_PROTO) that follows from the owner's name or is set by
// [Options]; links carry the alias "meshcni OWNER". The set "ledger" of the owner's table has a
// comment for each sysctl of the plan, with its former value, and for each address, route and
// policy rule of the plan that existed before. On kernels before 5.18, which do not keep an
// address's protocol, it also has the addresses that the owner has added. So this knowledge lives
// exactly as long as the namespace, is written by the same transactions as the rules, before the
// first sysctl, and survives the death of this process at any point. A sysctl gets its former value
// back only while it still has the plan's.
//
// An address, a route or a policy rule that exists already, as the plan wants it, serves the plan.
// It does not belong to the owner, and Remove leaves it. So a plan can be applied to a pod that
// another mesh's agent has programmed. These objects of other programs are errors before anything
// is written: a link of the same name, a route that differs in a table of the plan's own or to the
// same destination in the main table, and a policy rule that differs with the same priority or
// about the same marks.
//
// Calls on one namespace that need more than the first transaction wait for each other, also
// between processes, by a lock on the namespace itself (flock(2)).
//
// The error about a refused link, route or policy rule includes the kernel's explanation ("IPv6 is
// disabled on nexthop device") if the program has set EnableErrorMessageReporting of
// github.com/vishvananda/netlink/nl, which is one switch for a process. Package plugin sets it.
//
// # Rules of another dataplane
//
// Apply also removes the rules that [Options.Predecessors] have put in place for the owner. For a
// new pod it looks for them after the first transaction. Otherwise it removes them under the lock,
// once the plan's own rules are in place and before stale objects. It takes over the predecessors'
// record of the namespace.
//
// # Observing
//
// [Dataplane.Observe] follows the expressions of each rule as the kernel does, with what is known
// of the registers in place of their contents. So it finds out what a rule does, whether this
// package or nft wrote it, and in whichever of several forms. At the first expression that it does
// not fully understand it stops: it keeps the conditions so far, and the rest becomes the rule's
// Opaque action. One rule of a plan may be several in the kernel. These are joined when that rule
// would become exactly these again; their comments give hints which rules may belong together, and
// which of two spellings the plan had. With [Options].Foreign the chains of other programs are read
// as well.
//
// The chains of the table are identified by their names alone; the hook, type, priority and policy
// of a base chain show what it does. What plans cannot express is a deviation: a policy, a dormant
// table, a set with timeouts, a chain or set of another name, a route for one type of service.
// Observe does not look at objects that no rule of the table refers to, flowtables among them, nor
// at iptables-legacy.
//
// # Needs
//
// Linux 5.2 or later with nf_tables, family inet and what the plan uses of the modules
// nft_chain_nat, nft_redir, nft_nat, nft_ct, nft_tproxy, nft_reject_inet and nft_log; what is
// missing is named by an error that wraps [interception.ErrUnsupported]. To copy single bits
// between a packet's mark and its connection's takes Linux 6.13, unless the rule's match fixes
// these bits: then the rule writes them. Entering the namespace takes CAP_SYS_ADMIN, and the rest
// CAP_NET_ADMIN, in the user namespace that owns it. On systems other than Linux, [New] returns
// ErrUnsupported.
//
// # Goals
//
// The default plan in a fresh namespace within a millisecond; tens of thousands of prefixes without
// losing one; no error that is swallowed, guessed at or reported without its rule.
//
// # Non-goals
//
// Rules have no counters: they would cost every packet. The package does not repair single rules:
// it rewrites the whole table. It keeps no state between calls outside the kernel.
package nftables
