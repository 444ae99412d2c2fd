// SPDX-License-Identifier: Apache-2.0

// Package repair finds the pods of a mesh whose traffic is not captured, and says what is to be done about each: pods that were started
// before the plugin was installed or while it was bypassed, and pods that lost their rules since. It does so with values:
//
//		Pod --Diagnose--> Finding --Decide--> Action --Budget.Take--> now, or how long to wait
//		      (Criteria)            (Policy)          (time)
//
//	  - A [Pod] is the part of a Kubernetes Pod that matters here; [Criteria] say which pods are the mesh's and how a validator speaks, and
//	    carry what was seen of the pod on its node, an [Observation].
//	  - A [Finding] is a [Verdict] with its [Reason] and the evidence. Two things are told apart from broken pods: what a pod asks for has
//	    changed since its ADD ([Changed]), and this version plans otherwise than the one that was there then ([Outdated]).
//	  - A [Policy] has rules by namespace, owner kind and verdict. A rule lists what to do in order of preference; what cannot be done to
//	    the pod is skipped with the reason, and what remains at the end is a report.
//	  - A [Budget] keeps a mistake small: how often anything is done at all, to the pods of one owner, and to one pod.
//
// # Evidence
//
// There are two kinds. A validator, an init container or native sidecar that tries real connections, ends with an exit code of its own;
// both its current and its last end count, so that a pod that is never restarted is found too. And the kernel: what the pod's namespace
// holds is compared with the plan that was recorded when it was applied. Where both speak, the kernel is asked about now and
// the validator about then.
//
// The baseline is the record, never today's annotations. Whoever may edit a pod must not be able to have root widen its exclusions
// afterwards, nor to hide it by opting out: a pod with a record stays under care. Only a namespace that holds nothing at all, of a pod
// without a record, is given the plan of today, which takes nothing away from it.
//
// # Goals
//
// Every decision is a value with a reason that can be logged, counted and tested, without a cluster and on any operating system. The zero
// [Policy] reports, and touches nothing. What is deleted or evicted is the very object that was diagnosed, by UID and resourceVersion.
//
// # Non-goals
//
// Nothing here has an effect: no API server is called, no namespace opened, no clock read. It doesn't find a pod's namespace, and
// it doesn't judge whether a validator is right.
package repair
