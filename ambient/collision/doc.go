// SPDX-License-Identifier: Apache-2.0

// Package collision tells which numbers, names and addresses of a plan something else in its
// network namespace uses as well, before the plan is applied:
//
//	interception.Plan + Standing --Find--> []Collision
//
// Plans of ambient mode have marks, routing tables, priorities and ports that other programs may
// have chosen, too. The caller chooses others in ambient.NodeNumbers and ambient.Numbers.
package collision
