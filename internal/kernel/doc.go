// SPDX-License-Identifier: Apache-2.0

// Package kernel is the way to what the kernel keeps for a network namespace: netlink and sysctls. All that a dataplane reads and writes
// goes through a [Namespace], so that each single step can be watched, and can fail. It has two ways to netlink: a [Client], whose messages
// its caller writes and reads (all of nf_tables, and the lists of rtnetlink), and [Namespace].Change for the functions of
// github.com/vishvananda/netlink.
//
// # Goals
//
// A namespace is opened once, and everything goes to that one, whichever thread asks. Answers are the kernel's own (whoever is root in the
// namespace may send messages, too), and those to the question: an answer that comes late is not taken for the next one's. What the kernel
// sends is bounded and checked, and never makes the reader panic.
//
// The library reads the answers to changes itself, and gives up at a message that is not the kernel's. That is [ErrNoAnswer], so the change
// is taken back.
//
// # Non-goals
//
// What messages and attributes mean is the business of the packages above: nfnetlink and route.
package kernel
