// SPDX-License-Identifier: Apache-2.0

package repair

import (
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// Finding is the result of [Diagnose] for a pod.
type Finding struct {
	// Of is the pod, as it was when it was diagnosed.
	Of Target
	// Verdict is the result, Reason what decided, and Detail what that found: a key with its value,
	// a node's name. Detail may be empty.
	Verdict Verdict
	Reason  Reason
	Detail  string
	// OfPod reports that a pod is [NotOurs] for something that a user who may edit the pod can
	// change: only its record would show that it is ours.
	OfPod bool
	// Evidence is all that was seen for or against, even if something else decided.
	Evidence []Evidence
	// Drift is how the kernel differs from the plan that it was compared with.
	Drift []interception.Drift
	// Plan is what would repair a broken pod in place: the recorded plan, or today's in a namespace
	// that holds nothing. It is nil if there is no such plan; for a broken pod, NoPlan then
	// explains why.
	Plan   *interception.Plan
	NoPlan string
}

// Verdict is the result of a diagnosis. The texts are stable: policies, logs and metrics use them.
type Verdict string

// The verdicts.
const (
	// NotOurs: the pod is not one of the mesh's on this node, or its life is over.
	NotOurs Verdict = "not-ours"
	// Healthy: the pod is captured as intended.
	Healthy Verdict = "healthy"
	// Pending: it is too early to decide.
	Pending Verdict = "pending"
	// Unknown: the pod is in the mesh, and there is no evidence for or against its capture. No
	// validator has reported, its namespace was not compared with anything, and not all records
	// were read.
	Unknown Verdict = "unknown"
	// Changed: the pod is captured as recorded, and has asked for something else since.
	Changed Verdict = "changed"
	// Outdated: the pod is captured as recorded, and this version would plan otherwise for the same
	// annotations.
	Outdated Verdict = "outdated"
	// Suspect: something is wrong, but it is not certain that the pod is not captured.
	Suspect Verdict = "suspect"
	// Broken: the pod is not captured as intended.
	Broken Verdict = "broken"
)

// Reason names what decided. A pod that is [NotOurs] because the mesh's own policy leaves it alone
// has the mesh's reason.
type Reason = interception.Reason

// The reasons for which a pod is not ours, besides those of its [Mesh].
const (
	reasonNoMesh Reason = "no-mesh" // no Mesh is given

	// ReasonOtherNode: the pod is on another node.
	ReasonOtherNode Reason = "other-node"
	// ReasonUnscheduled: the pod is not on a node yet.
	ReasonUnscheduled Reason = "unscheduled"
	// ReasonTerminating: the pod is being deleted.
	ReasonTerminating Reason = "terminating"
	// ReasonSucceeded: all containers of the pod have succeeded.
	ReasonSucceeded Reason = "succeeded"
	// ReasonFailed: the pod has ended, and no validator reports that missing capture was the cause.
	ReasonFailed Reason = "failed"
)

// The reasons of the other verdicts.
const (
	// ReasonDrift: broken, the kernel differs from the record.
	ReasonDrift Reason = "drift"
	// ReasonNoRules: broken, the namespace holds nothing of ours, and the pod has no record.
	ReasonNoRules Reason = "no-rules"
	// ReasonValidator: broken, a validator reported "not captured".
	ReasonValidator Reason = "validator"
	// ReasonValidatorDied: suspect, a validator failed, but did not report "not captured".
	ReasonValidatorDied Reason = "validator-died"
	// ReasonContradiction: suspect, a validator reported "not captured", but the kernel holds what
	// it should.
	ReasonContradiction Reason = "contradiction"
	// ReasonForeignRules: suspect, the rules are in place, but another program's rules can change
	// the outcome.
	ReasonForeignRules Reason = "foreign-rules"
	// ReasonNoRecord: suspect, the namespace holds something else than would be planned today. It
	// may well be what was intended when it was applied: the pod has no record.
	ReasonNoRecord Reason = "no-record"
	// ReasonNotRecorded: suspect, the pod has a network, but the plugin has no record of it, and no
	// validator has passed. The pod was started without the plugin, or its record is lost.
	ReasonNotRecorded Reason = "not-recorded"
	// ReasonAnnotationsChanged: changed, keys of the pod that the plan was made from have other
	// values since, or now exclude the pod.
	ReasonAnnotationsChanged Reason = "annotations-changed"
	// ReasonPlanChanged: changed, today's plan differs and nothing in the pod explains it; the
	// facts of the node or the operator's settings do.
	ReasonPlanChanged Reason = "plan-changed"
	// ReasonPlannerNewer: outdated, another version of the planner plans differently.
	ReasonPlannerNewer Reason = "planner-newer"
	// ReasonAsRecorded: healthy, the kernel holds what was recorded.
	ReasonAsRecorded Reason = "as-recorded"
	// ReasonRecorded: healthy, the plugin recorded that it captured the pod. The rules were not
	// checked since.
	ReasonRecorded Reason = "recorded"
	// ReasonAsToday: healthy, the kernel holds what would be planned today; the pod has no record.
	ReasonAsToday Reason = "as-today"
	// ReasonRepaired: healthy, the kernel holds what was recorded, after a validator had failed.
	ReasonRepaired Reason = "repaired"
	// ReasonValidated: healthy, a validator has passed.
	ReasonValidated Reason = "validated"
	// ReasonValidatorPending: pending, the validator has not ended yet.
	ReasonValidatorPending Reason = "validator-pending"
	// ReasonStarting: pending, the pod has no network yet.
	ReasonStarting Reason = "starting"
	// ReasonEnding: pending, the containers have ended for good, and the pod has no record, since
	// that is removed with its network.
	ReasonEnding Reason = "ending"
	// ReasonWrongUID: unknown, the observation or the record belongs to another pod.
	ReasonWrongUID Reason = "wrong-uid"
	// ReasonNoBaseline: unknown, the namespace was observed, but there is no plan to compare it
	// with.
	ReasonNoBaseline Reason = "no-baseline"
	// ReasonNotObserved: unknown, the pod has no validator, its namespace was not observed, and its
	// record is not known.
	ReasonNotObserved Reason = "not-observed"
)

// Evidence is one thing that was seen.
type Evidence struct {
	// From is where the evidence comes from.
	From EvidenceKind
	// Text is a sentence without a full stop. It quotes what comes from the pod.
	Text string
}

// EvidenceKind is where evidence comes from. The texts are stable.
type EvidenceKind string

// The kinds of evidence.
const (
	// EvidenceValidator is a validator's end.
	EvidenceValidator EvidenceKind = "validator"
	// EvidenceKernel is what the namespace holds.
	EvidenceKernel EvidenceKind = "kernel"
	// EvidenceRecord is what was recorded, or that nothing was.
	EvidenceRecord EvidenceKind = "record"
	// EvidenceAnnotations is a key of the pod that has changed since the record.
	EvidenceAnnotations EvidenceKind = "annotations"
	// EvidencePlanner is the version of the program that made the plan.
	EvidencePlanner EvidenceKind = "planner"
)

// Has reports whether there is evidence of the kind.
func (f Finding) Has(kind EvidenceKind) bool {
	return slices.ContainsFunc(f.Evidence, func(e Evidence) bool { return e.From == kind })
}

// String returns verdict, reason, detail and evidence in one line.
func (f Finding) String() string {
	var b strings.Builder
	b.WriteString(string(f.Verdict) + ": " + string(f.Reason))
	if f.Detail != "" {
		b.WriteString(" (" + f.Detail + ")")
	}
	for _, e := range f.Evidence {
		b.WriteString("; " + string(e.From) + ": " + e.Text)
	}
	return b.String()
}
