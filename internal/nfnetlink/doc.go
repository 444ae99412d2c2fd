// SPDX-License-Identifier: Apache-2.0

// Package nfnetlink sends transactions to netfilter's netlink subsystems (linux/netfilter/nfnetlink.h) and tells exactly what
// the kernel answered.
//
//   - A [Batch] is a transaction in the making: messages that the kernel commits together or not at all. Its attributes never
//     exceed what a netlink attribute can hold: a batch with one that does is an error, not a truncated message.
//   - A [Socket] lives in one network namespace. [Socket.Commit] sends a batch with one system call, and asks for one
//     acknowledgement: that of the last message. It reads every answer, since that acknowledgement is there, and says success,
//     also when an earlier message failed and nothing was committed.
//   - [Socket.Query] asks one thing and returns the whole answer.
//   - A [RefusedError] is the first error among the answers, with the index of the message it is about and the kernel's own
//     explanation (extended acknowledgement) where there is one.
//
// # Goals
//
// Few system calls, few allocations, no goroutine that outlives a call, and no answer that is lost in silence.
//
// # Non-goals
//
// No notifications, no families other than netfilter. The package knows nothing about tables and chains; it carries
// messages. It exists beside github.com/mdlayher/netlink because that has one acknowledgement per message.
package nfnetlink
