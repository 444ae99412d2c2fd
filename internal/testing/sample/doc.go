// SPDX-License-Identifier: Apache-2.0

// Package sample generates inputs for tests that compare answers about a plan:
//
//   - random redirects ([Redirect]), and random packets that meet their edges ([Pod.Packet]):
//     addresses at both ends of a prefix and just beyond, ports likewise, ids of the proxy and of
//     other processes;
//   - random plans of all tables, with everything that a packet's walk depends on ([Plan]) or only
//     what every renderer can express ([Rules]), their parts ([Generator]), their mutations
//     ([Mutation]), and packets and a world for them ([Packet], [World]);
//   - everything that a redirect can be ([Space]): each of its fields, with a value of every kind
//     that a planner could treat differently. docs/rules.md is generated from the planner's answers
//     to these.
//
// The same [Choices] give the same sample. The package is for meshcni's own tests only.
package sample
