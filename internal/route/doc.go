// SPDX-License-Identifier: Apache-2.0

// Package route puts the objects of a plan that precede its rules into a network namespace: links,
// addresses, sysctls, routes and policy rules, by rtnetlink and /proc/sys/net.
//
//	Dial ──▶ Socket ──Prepare(plan, owner, record)──▶ Change ──Do──▶ (the rules) ──Settle──▶
//	                  looks, writes nothing                  └─ Undo, when the rules are refused
//
// Preparing a [Change] looks at the namespace: what the owner has, what the plan needs, what is in
// its way. Do adds what is missing in the order of the plan, and Settle removes what the owner had
// and the plan lacks, in reverse order; so between them old and new objects exist side by side.
// Either may be repeated.
//
// # Ownership
//
// Routes, policy rules and addresses carry the owner's protocol number ([Owner]); links carry the
// owner's name in their alias. A kernel before 5.18 does not keep an address's protocol, and a
// sysctl's former value is needed to restore it: for these the caller keeps a [Record]. What
// existed before does not belong to the owner, and is not removed. If it is an address, a route or
// a policy rule as the plan wants it, the record has it, too, so that Observe finds it.
//
// # Goals
//
// A collision with another program's object is an error before anything is written. After a failed
// step, Undo leaves the namespace as it was.
//
// # Non-goals
//
// The package stores nothing: the caller decides where the record is kept. It is no rtnetlink
// client: github.com/vishvananda/netlink reads and makes links, deletes addresses, and adds and
// deletes routes and policy rules. The package only adds what the library lacks:
//
//   - the protocol of an address, so addresses are added and listed here;
//   - the attributes of a route or a policy rule that the library's types leave out, among them a
//     rule's action, a route's nexthop object and most encapsulations. Everything that no plan has
//     is drift, so both are listed here, attribute by attribute;
//   - the kernel's own message about such an object, which deletes it or restores it exactly.
package route
