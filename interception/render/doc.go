// SPDX-License-Identifier: Apache-2.0

// Package render writes a plan as the text that netfilter's own tools read, for people to review and for golden files: [NFT]
// is the script that nft(8) would load, [IPTablesRestore] what iptables-restore(8) takes for one family. [Table] is for people alone.
//
// It also says, once for text and netlink, how a plan is laid out in nf_tables ([Chains], [SetName], [Intervals], [Networks]):
//
//	table inet istio-cni                     one table, named after the owner; its removal removes all of the plan
//	  set set-NAME                           a Set: an interval set of addresses
//	  set set-NAME/BITS                      a Set of many networks of that length: their first addresses, which rules ask for behind a mask
//	  chain hook.TABLE.HOOK                  a base chain per table and hook that has entries, holding only their jumps
//	  chain TABLE-CHAIN                      an owned chain
//
// No name is a word of nft's language, so that what "nft list ruleset" prints can be loaded back.
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
