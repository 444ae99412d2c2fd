// SPDX-License-Identifier: Apache-2.0

// Package ipset speaks the kernel's protocol for ipsets (linux/netfilter/ipset/ip_set.h): hashes of
// addresses or of networks, whose members have comments.
//
// # Goals
//
// Ten thousand members are read in some milliseconds, and whatever a message holds is either
// understood or an error. github.com/vishvananda/netlink has functions for the same messages: its
// list takes a second for as many, and its changes panic at a refusal that the kernel explains.
//
// # Non-goals
//
// Other types of sets, timeouts, counters, and everything else that no live set of a plan has.
package ipset
