// SPDX-License-Identifier: Apache-2.0

// Package kernel gives access to what the kernel keeps for a network namespace: netlink and
// sysctls. Everything that a dataplane reads and writes goes through a [Namespace], so tests can
// watch each step and make it fail. There are two ways to netlink: a [Client], whose messages the
// caller encodes and decodes (all of nf_tables, and the lists of rtnetlink), and [Namespace].Change
// for the functions of github.com/vishvananda/netlink.
//
// # Goals
//
// A namespace is opened once, and every access goes to it, whichever thread makes it. Only the
// kernel's own answers count, since the root user of the namespace may send messages, too, and only
// those to the current request: a late answer is not taken for the next one's. The size of answers
// is bounded, their form is checked, and none makes the reader panic.
//
// The netlink library reads the answers to changes itself, and gives up at a message that is not
// the kernel's. That is [ErrNoAnswer], so the caller undoes the change.
//
// # Non-goals
//
// The packages above, nfnetlink and route, know what messages and attributes mean.
package kernel
