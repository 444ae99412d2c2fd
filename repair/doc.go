// SPDX-License-Identifier: Apache-2.0

// Package repair finds the pods of a mesh whose traffic is not captured, and decides what to do
// about each: pods that were started before the plugin was installed or while it was bypassed, and
// pods that have lost their rules since. It works with values:
//
//	Pod --Diagnose--> Finding --Decide--> Action --Budget.Take--> now, or how long to wait
//	      (Criteria)            (Policy)          (time)
//
// These are the types:
//
//   - A [Pod] is the part of a Kubernetes Pod that matters here. [Criteria] define which pods are
//     in the mesh and how a validator reports, and carry what the node saw of the pod, an
//     [Observation].
//   - A [Finding] is a [Verdict] with its [Reason] and the evidence. Two verdicts are distinct from
//     broken: what a pod asks for has changed since its ADD ([Changed]), and this version plans
//     differently from the one that planned then ([Outdated]).
//   - A [Policy] has rules by namespace, owner kind and verdict. A rule lists what to do in order
//     of preference. What cannot be done to the pod is skipped with the reason; if nothing remains,
//     the pod is reported.
//   - A [Budget] bounds the damage of a mistake: how often anything is done at all, to the pods of
//     one owner, and to one pod.
//
// # Evidence
//
// There are two kinds of evidence. A validator is an init container or native sidecar that tries
// real connections, and ends with an exit code of its own; both its current and its last end count,
// so that a pod that is never restarted is found too. The kernel is the other: what the pod's
// namespace holds is compared with the plan that was recorded when it was applied. With both, the
// kernel answers for now and the validator for then.
//
// The baseline is the record, never today's annotations. A user who may edit a pod must not be able
// to make root widen the pod's exclusions afterwards, nor hide the pod by opting out: a pod with a
// record stays under care. Today's plan is used only for a pod without a record whose namespace
// holds nothing at all: there it removes nothing.
//
// # Goals
//
// Every decision is a value with a reason, which can be logged, counted and tested without a
// cluster and on any operating system. The zero [Policy] reports, and touches nothing. Only the
// very object that was diagnosed is deleted or evicted, by UID and resourceVersion.
//
// # Non-goals
//
// Package repair has no effects: it calls no API server, opens no namespace and reads no clock. It
// does not find a pod's namespace, and it does not judge whether a validator is right.
package repair
