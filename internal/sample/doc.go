// SPDX-License-Identifier: Apache-2.0

// Package sample makes what tests are asked about, so that whatever answers for a plan can be held
// against whatever else does:
//
//   - random redirects ([Redirect]), and random packets that meet their edges ([Pod.Packet]):
//     addresses at both ends of a prefix and just beyond, ports likewise, ids that are the proxy's
//     and ids that are nobody's;
//   - random plans of all tables ([Plan]), their mutations ([Mutation]), and packets and a world
//     for them ([Packet], [World]);
//   - all that a redirect can be ([Space]): each of its fields, with a value of every kind that a
//     planner could treat in a way of its own. docs/rules.md is made from the planner's answers to
//     these.
//
// What it makes at random is the same for the same [Choices]. It is for meshcni's own tests, and
// has no other use.
package sample
