// SPDX-License-Identifier: Apache-2.0

// Package iptables is the [interception.Dataplane] that speaks to the kernel by iptables-restore and iptables-save, for kernels and
// policies where package nftables is not to be used. Both flavours of iptables are served, legacy and nft.
//
// The rules are those of [render.IPTablesRestore]: all chains of an owner's begin with its name in upper case and '_', such as
// ISTIO-CNI_OUTPUT, no other owner's do, and a hook has nothing of the owner's but jumps into them. What leads into such a chain from
// a hook, and all that is in it, is the owner's, whatever a comment says; nothing else is touched.
//
// [Dataplane.Apply] into a namespace that has nothing of the owner starts one program for each family. Its text makes the owner's chains,
// and so it fails, and changes nothing, when they are there already. Else the rules are listed by iptables-save: chains that differ
// are filled anew, missing jumps are added, and what the plan has not is taken away. When nothing differs, nothing is started beyond the
// listing. Whether there is anything to list is seen without a program: from /proc/net/ip_tables_names, ip6_tables_names, and the names of
// nf_tables' chains.
//
// # Updates
//
// The kernel commits rules table by table, and family by family. No packet is of two families. So that a connection that the old and the
// new plan capture is captured at each instant in between, tables that are new come first, then the one that changes, and tables that
// go come last. Where more than one table changes, or where the tables beside it would take connections from others, a chain of
// the owner's with the end 0-GUARD drops what begins a connection, from ahead of all other rules of table filter, until the last table is
// in place. A sender whose packet was dropped sends it again. When the process is killed meanwhile, the guard may stay; the next Apply
// goes on from there, and removes it.
//
// # Links, addresses, sysctls, routes and policy rules
//
// They are treated as package nftables does, and carry the same marks of the owner. What is to be remembered of a namespace, such as the
// value that a sysctl had before, stands in comments of a chain with the end 0-LEDGER in table filter of IPv4, which nothing leads to.
//
// # Programs
//
// No shell is started, and programs get an environment of their own. iptables asks the C library for each user and group, also for
// numbers, as if it was a name. Where the host asks others than files for names, which may take long, a program is started in a mount
// namespace in which /etc/nsswitch.conf is empty.
//
// The lock of iptables-legacy is one of each call's own unless [Options.LockFile] is set, so that nobody waits for programs that work on
// other namespaces, and no directory has to be writable. Calls on one namespace wait for each other by a lock on the namespace itself. The
// programs that a call starts have that lock, too: when the process is killed, and a program of its is still at work, the next call waits
// for the program's end.
//
// # Needs
//
// iptables 1.8 or later, and the kernel's modules for what the plan uses: xt_comment and, as the rules have it, xt_owner, xt_multiport,
// xt_mark, xt_connmark, xt_conntrack, xt_TPROXY, xt_CT, xt_REDIRECT. Entering the namespace takes CAP_SYS_ADMIN, and the rest CAP_NET_ADMIN,
// in the user namespace that owns it. Conditions on the owner of a socket are taken by the kernel only from a process in that user
// namespace: for the pods that have one, see [Options.Nsenter]. On other systems than Linux, [New] returns ErrUnsupported.
//
// # Goals
//
// One program for each family into a fresh namespace; each error with the rule it is about; never a half-captured pod.
//
// # Non-goals
//
// Live sets: they would need ipset, which is neither part of iptables nor everywhere. Removing the kernel's own tables and chains when they
// are empty. Finding out by itself that package nftables has rules of the owner: see [Options.Predecessor].
package iptables
