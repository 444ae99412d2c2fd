// SPDX-License-Identifier: Apache-2.0

// Package controller keeps the pods of one node captured: it watches them through a client-go
// informer, lets package repair judge each, and applies the operator's policy to those that are not
// captured.
//
//	Pod --Diagnose--> Finding (--Observe--> Finding) --Decide--> Action --Budget--> done
//	    (label, delete, evict, repair in place or report)
//
// # Goals
//
//   - Only the pod that was diagnosed is changed: requests to the API server have its UID and
//     resourceVersion as preconditions, and after a conflict the pod is judged again. So a second
//     copy of the controller does no harm, and needs no leader election.
//   - No more is written than the limits allow, even if many pods break at once. What exceeds a
//     limit waits; nothing is forgotten. The limit of deletions and evictions holds also if the
//     process starts again and again.
//   - An API server that is slow, unreachable or refuses only causes delay, which is reported: each
//     request has a deadline, and each pod a bounded number of attempts until it changes or its
//     turn comes again. After four failed repairs in place, the next mode is used.
//   - A pod that keeps its network namespace changing delays others by a bounded time: each look
//     and each repair has a deadline.
//   - Little memory: only the fields that matter here are decoded and kept, and these are bounded.
//     Of the types of Kubernetes' API, only the metadata's are linked.
//   - Every pod is looked at when the controller starts, and again at intervals: what was missed
//     during a reboot, a crash or an upgrade is found without a validator. What only this shows is
//     reported first, unless the operator chooses otherwise.
//
// # Non-goals
//
// The controller does not log: it passes the outcome of each pod to a function. It enters no
// network namespace itself: [Namespaces] does. It serves no metrics: [Controller.Status] has the
// numbers.
package controller
