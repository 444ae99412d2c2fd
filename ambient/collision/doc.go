// SPDX-License-Identifier: Apache-2.0

// Package collision tells which numbers, names and addresses of a plan something else in its
// network namespace uses as well, before the plan is applied:
//
//	interception.Plan + Standing --Find--> []Collision
//
// Plans of ambient mode have marks, routing tables, priorities and ports that other programs may
// have chosen too; ambient.NodeNumbers and ambient.Numbers have others to choose.
package collision
