// SPDX-License-Identifier: Apache-2.0

// Package redirects lists what a Redirect can be ([Space]): each of its fields, with a value of every kind that a planner could treat in a
// way of its own. A [Point] has one of them for each field.
//
// Tests ask the planner about all of them, at random or one by one; docs/rules.md is made from the answers. It is for meshcni's own tests
// and has no other use.
package redirects
