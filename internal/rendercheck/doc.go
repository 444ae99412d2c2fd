// SPDX-License-Identifier: Apache-2.0

// Package rendercheck makes random plans that have everything that plans can have ([RandomPlan]), for tests of what is made of them.
//
// Its own tests load what package interception/render writes for iptables with the real tools, legacy and nf_tables, and list it
// back. They need namespaces; the tests of render itself run anywhere.
package rendercheck
