// SPDX-License-Identifier: Apache-2.0

// Package backend applies and removes plans in the steps that are the same for each of this
// module's dataplanes. A backend adds its [Rules]: how it encodes and decodes them, and its
// transaction.
//
//	Dataplane.Apply ──▶ lock ──▶ Look ──▶ predecessors ──▶ Prepare ──▶ Remember ──▶ Do ──▶ Write ──▶
//	                    └─ again, when another program      (package route)   └─ Undo, Remember
//	                       changes rules meanwhile
//	──▶ members carried over ──▶ the predecessors' rules go ──▶ Settle ──▶ Remember
//
// Until Write the namespace holds the old plan's rules, and everything that they need. From then on
// it holds the new plan's, and all that remains is to remove what is left of the old plan. If that
// fails, the whole call is repeated once.
//
// # Another backend
//
// A backend is a package beside interception/nftables. Its Dataplane is a [Successor]: it passes
// its calls to a [Dataplane] of this package, embeds a [Heritage], and has its own Supports. The
// backend implements [Rules] for what it writes to the kernel, and its Options have Predecessors.
// One entry in the list of package interception/choice/standard then makes it a candidate, and a
// predecessor of all others. Packages choice and plugin/pluginconf repeat the names of backends,
// and deps_test.go has the rule that none imports another. The laws of package
// interception/dataplanetest test a backend. TestThird of package standard adds a third one in
// this way.
//
// # Goals
//
// All dataplanes refuse the same arguments, in the same order and words. Later errors name the
// call, the plan's owner and the namespace.
//
// The dataplanes know each other as predecessors only, and none imports another. A program that
// uses several tells each about all others, as package standard does.
//
// # Non-goals
//
// The package knows neither netlink nor programs, and not how a backend keeps a record.
package backend
