// SPDX-License-Identifier: Apache-2.0

// Package backend applies and removes plans in the steps that are the same for each of this
// module's dataplanes. A backend adds its [Rules]: how it encodes and decodes them, and its
// transaction.
//
//	Dataplane.Apply ──▶ lock ──▶ Look ──▶ predecessors ──▶ Prepare ──▶ Remember ──▶ Do ──▶ Write ──▶
//	                    └─ again, when another program      (package route)   └─ Undo, Remember
//	                       changes rules meanwhile
//	──▶ the predecessors' rules go ──▶ Settle ──▶ Remember
//
// Until Write the namespace holds the old plan's rules, and everything that they need. From then on
// it holds the new plan's, and a failure is tried once more: what is left of the old plan only has
// to go.
//
// # Goals
//
// All dataplanes refuse the same arguments, in the same order and words. Later errors name the
// call, the plan's owner and the namespace.
//
// The dataplanes know each other as predecessors only, and none imports another. A
// program that uses several tells each about all others.
//
// # Non-goals
//
// The package knows neither netlink nor programs, and not how a backend keeps a record.
package backend
