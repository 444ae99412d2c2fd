// SPDX-License-Identifier: Apache-2.0

// Package rendercheck makes random plans that have everything that plans can have ([RandomPlan]),
// for tests of what is made of them.
//
// Its own tests load what package interception/render writes with the real tools, nft and both
// flavours of iptables, also for plans that fuzzing makes ([PlanOf]). They need namespaces; the
// tests of render itself run anywhere.
package rendercheck
