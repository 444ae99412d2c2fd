// SPDX-License-Identifier: Apache-2.0

// Package nfnetlink sends transactions to netfilter's netlink subsystems
// (linux/netfilter/nfnetlink.h) and reports exactly what the kernel answered.
//
//   - A [Batch] is a transaction in the making: messages that the kernel commits together or not at
//     all. An attribute that exceeds the size of netlink attributes makes the batch an error, not a
//     truncated message.
//   - A [Socket] belongs to one network namespace. [Socket.Commit] sends a batch with one system
//     call, and requests only the last message's acknowledgement. It reads every answer: the kernel
//     sends that acknowledgement even when an earlier message failed and nothing was committed.
//   - [Socket.Query] sends one request and returns the whole answer.
//   - A [RefusedError] is the first error among the answers, with the index of the message it is
//     about and the kernel's explanation (extended acknowledgement) if it gave one.
//
// # Goals
//
// Few system calls, few allocations, no goroutine that outlives a call, and no answer that is lost
// silently.
//
// # Non-goals
//
// No notifications, no families other than netfilter. The package carries messages, and knows
// nothing about tables and chains. It exists because github.com/mdlayher/netlink requests one
// acknowledgement per message.
package nfnetlink
