// SPDX-License-Identifier: Apache-2.0

// Package standard makes candidates for package choice of the two dataplanes of this module, nftables and iptables.
//
// It is a package of its own because it links both. A program that writes rules by one of them alone, such as a small CNI plugin, needs
// package choice without the other.
package standard
