// SPDX-License-Identifier: Apache-2.0

// Package route puts the objects of a plan that stand before its rules into a network namespace: links, addresses, sysctls, routes and
// policy rules, by rtnetlink and /proc/sys/net.
//
//	Open ──▶ Socket ──Prepare(plan, owner, record)──▶ Change ──Do──▶ (the rules) ──Settle──▶
//	                  looks, writes nothing                  └─ Undo, when the rules are refused
//
// A [Change] is prepared by looking at the namespace: what is the owner's, what the plan wants, what is in its way. Do adds what is
// missing in the order of the plan, and Settle takes away what the owner had and the plan does not have, in reverse order; so between
// them old and new stand together. Either may be repeated.
//
// # Ownership
//
// Routes, policy rules and addresses carry the owner's protocol number ([Owner]), links its name in their alias. A kernel before 5.18
// forgets an address's protocol: there, and for sysctls, whose value before has to be known to bring it back, the caller keeps a [Record].
// What was there before is not the owner's, and is not removed.
//
// # Goals
//
// A collision with somebody else is an error before anything is written; a failure leaves nothing behind.
//
// # Non-goals
//
// The package keeps nothing itself: where the record lies is the caller's choice. It is no client of rtnetlink: that is
// github.com/vishvananda/netlink, which reads and makes links, deletes addresses, and adds and deletes routes and policy rules. Here is
// only what the library lacks:
//
//   - the protocol of an address, so addresses are added and listed here;
//   - the attributes of a route or a policy rule that its types leave out, among them a rule's action, a route's nexthop object and most
//     encapsulations. Drift is all that no plan has, so both are listed here, attribute by attribute;
//   - the kernel's own message about such an object, which deletes it or puts it back just as it was.
package route
