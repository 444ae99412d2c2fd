// SPDX-License-Identifier: Apache-2.0

// Package rendercheck generates random plans with every feature of a plan ([RandomPlan]), for tests
// of their renderings.
//
// Its own tests load the output of package interception/render with the real tools, nft and both
// flavours of iptables, also for plans from fuzzing ([PlanOf]). They need namespaces; the tests of
// render itself run anywhere.
package rendercheck
