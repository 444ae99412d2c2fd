// SPDX-License-Identifier: Apache-2.0

// Package render writes a plan as the text that netfilter's own tools read, for people to review and for golden files: [NFT]
// is the script that nft(8) would load, [IPTablesRestore] what iptables-restore(8) takes for one family. [Table] is for people alone.
//
// Package lower says how a plan is laid out in nf_tables, for text and netlink alike.
//
// # Goals
//
// The text is what a person would have written, and loading it gives exactly the rules that package nftables puts into the kernel:
// tests compare the two. It is the same for the same plan, byte for byte.
//
// # Non-goals
//
// Nothing here runs a program or reads a kernel. The dataplanes do not go by way of this text.
package render
