// SPDX-License-Identifier: Apache-2.0

// Package render writes a plan as text for netfilter's own tools, for review and golden files:
// [NFT] writes the script that nft(8) would load, [IPTablesRestore] the input of
// iptables-restore(8) for one family. [Table] writes text for people.
//
// Package lower defines the layout in nf_tables, for text and netlink alike.
//
// # Goals
//
// The text is what a person would have written. Loading it gives exactly the rules of package
// nftables; tests compare the two. The same plan gives the same text, byte for byte.
//
// # Non-goals
//
// Nothing here runs a program or reads from a kernel. The dataplanes do not use this text.
package render
