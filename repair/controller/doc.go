// SPDX-License-Identifier: Apache-2.0

// Package controller keeps the pods of one node captured: it watches them by a client-go informer, has package repair judge each, and does
// what the operator's policy says about those that are not.
//
//	Pod --Diagnose--> Finding (--Observe--> Finding) --Decide--> Action --Budget--> label, delete, evict, repair in place, report
//
// # Goals
//
//   - Nothing is done to another pod than the one that was diagnosed: what goes to the API server has its UID and resourceVersion as
//     preconditions, and a conflict means that the pod is judged anew. So a second copy beside this one does no harm, and nobody has to
//     be elected.
//   - No more is written than the limits allow, in a wave of broken pods too. What is over a limit waits; nothing is forgotten.
//   - An API server that is slow, refuses or is away delays, and is told of: each request has a deadline, each pod a bounded number of
//     attempts until it changes or its turn comes again.
//   - Little memory: of a pod only what matters here is decoded and kept, and that is bounded. No type of Kubernetes' API is linked but
//     its metadata.
//   - Every pod is looked at when the controller starts, and again at intervals: what slipped through during a reboot, a crash or an
//     upgrade is found without a validator. What only that shows is reported first, unless the operator wants otherwise.
//
// # Non-goals
//
// It does not log: what becomes of each pod is handed to a function. It enters no network namespace itself: [Namespaces] does. It
// serves no metrics: [Controller.Status] has the numbers.
package controller
