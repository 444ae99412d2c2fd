// SPDX-License-Identifier: Apache-2.0

// Package iptables is the [interception.Dataplane] that programs the kernel by iptables-restore and
// iptables-save, for kernels and policies that rule out package nftables. It supports both flavours
// of iptables, legacy and nft.
//
// The rules are those of [render.IPTablesRestore]: the names of an owner's chains, and of no other
// chains, begin with the owner's name in upper case and '_', such as ISTIO-CNI_OUTPUT. In the hooks
// the owner has only jumps into these chains. Every rule in such a chain, and every rule of a hook
// that leads into one, belongs to the owner, whatever its comment; nothing else is touched.
//
// [Dataplane.Apply] to a namespace that has nothing of the owner starts one program for each
// family. Its text makes the owner's chains, so it fails, and changes nothing, if they already
// exist. Otherwise Apply lists the rules with iptables-save, refills chains that differ, adds
// missing jumps, and removes what the plan lacks. If nothing differs, it starts no other program.
// It finds out without a program whether there is anything to list: from the kernel's chains of
// nf_tables, and from the tables of iptables-legacy. Beside many rules of other programs,
// iptables-restore gets a text that changes nothing and lists the owner's chains alone ("-S"); if
// the kernel counts other uses of these chains, iptables-save lists everything.
//
// # Updates
//
// The kernel commits rules table by table, and family by family; a packet belongs to one family. A
// connection that both the old and the new plan capture must be captured at each instant in
// between. Therefore new tables are committed first, then the one that changes, and then those that
// the new plan lacks. If more than one table changes, or if a new or old table would take
// connections from others, a guard is needed: a chain of the owner whose name ends in 0-GUARD,
// ahead of all other rules of table filter, drops packets that begin a connection until the last
// table is in place. The sender of a dropped packet sends it again. If the process is killed
// meanwhile, the guard may stay; the next Apply goes on from that state, and removes it. A plan's
// first rules need no guard: nothing is captured yet.
//
// # Links, addresses, sysctls, routes and policy rules
//
// They are treated as in package nftables, and carry the same marks of the owner. What has to be
// remembered of a namespace, such as the former value of a sysctl, is in comments of a chain whose
// name ends in 0-LEDGER, in table filter of IPv4. No rule leads to it.
//
// # Programs
//
// No shell is started, and programs get an environment of their own. iptables looks up each user
// and group in the C library, also a number as if it was a name. If the host looks up names in
// other sources than files, which may take long, a program is started in a mount namespace in which
// /etc/nsswitch.conf is empty.
//
// The dataplane ends each program after [Options.Wait] and [Options.Timeout], also where a call
// goes on after the end of its context. A pod with CAP_NET_ADMIN can change its rules all the time,
// and would keep the program at work for ever.
//
// Each call has its own lock file for iptables-legacy unless [Options.LockFile] is set, so that no
// call waits for programs that work on other namespaces, and no directory has to be writable. Calls
// on one namespace wait for each other by a lock on the namespace itself. The programs of a call
// inherit that lock: if the process is killed while its program is still at work, the next call
// waits for the program's end.
//
// # Needs
//
// iptables 1.8 or later, and the kernel's modules for what the plan uses: xt_comment and, depending
// on the rules, xt_owner, xt_multiport, xt_mark, xt_connmark, xt_conntrack, xt_TPROXY, xt_CT,
// xt_REDIRECT; for live sets ip_set, ip_set_hash_ip or ip_set_hash_net, and xt_set. Entering the
// namespace takes CAP_SYS_ADMIN, and the rest CAP_NET_ADMIN, in the user namespace that owns it.
// The kernel takes conditions on the owner of a socket only from a process in that user namespace:
// for pods with their own user namespace, see [Options.Nsenter]. On systems other than Linux, [New]
// returns ErrUnsupported.
//
// # Goals
//
// One program for each family into a fresh namespace; each error with the rule it is about; never a
// half-captured pod.
//
// # Non-goals
//
// Removing the kernel's own tables and chains when they are empty. Finding out by itself that
// another dataplane has rules of the owner: see [Options.Predecessors].
package iptables
