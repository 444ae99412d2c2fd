// SPDX-License-Identifier: Apache-2.0

package repair

import (
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// Finding is what [Diagnose] says of a pod.
type Finding struct {
	// Of is the pod that was diagnosed, as it was.
	Of Target
	// Verdict is the result, Reason what decided, and Detail what that found: a key with its value, a node's name. It may be empty.
	Verdict Verdict
	Reason  Reason
	Detail  string
	// OfPod says that a pod is [NotOurs] because of what whoever may edit it can change: only its record would tell that it is ours.
	OfPod bool
	// Evidence is all that speaks for or against, also where the verdict is about something else.
	Evidence []Evidence
	// Drift is in what the kernel differs from the plan that it was compared with.
	Drift []interception.Drift
	// Plan is what would repair a broken pod in place: that of its record, or, in a namespace that holds nothing, of today. It is nil when
	// there is none, and NoPlan then says why, for broken pods.
	Plan   *interception.Plan
	NoPlan string
}

// Verdict is the result of a diagnosis. The texts are stable: policies, logs and metrics use them.
type Verdict string

// The verdicts.
const (
	// NotOurs: the pod is none of the mesh's on this node, or its life is over.
	NotOurs Verdict = "not-ours"
	// Healthy: the pod is captured as it was meant to be.
	Healthy Verdict = "healthy"
	// Pending: it is too early to tell.
	Pending Verdict = "pending"
	// Unknown: the pod is the mesh's, and there is no evidence for or against its capture. No validator has spoken, its namespace was not
	// compared with anything, and the records were not read, or not all of them could be.
	Unknown Verdict = "unknown"
	// Changed: the pod is captured as was recorded, and asks for something else since.
	Changed Verdict = "changed"
	// Outdated: the pod is captured as was recorded, and this version would plan otherwise for the same annotations.
	Outdated Verdict = "outdated"
	// Suspect: something is wrong, and it isn't known that the pod is not captured.
	Suspect Verdict = "suspect"
	// Broken: the pod is not captured as it was meant to be.
	Broken Verdict = "broken"
)

// Reason names what decided. The texts are stable: logs and metrics use them. A pod that is [NotOurs] because the mesh's own
// policy leaves it alone has the reason of the mesh for that.
type Reason string

// The reasons for which a pod is not ours, besides those of its [Mesh].
const (
	reasonNoMesh Reason = "no-mesh" // no Mesh is given

	// ReasonOtherNode: it is on another node.
	ReasonOtherNode Reason = "other-node"
	// ReasonUnscheduled: it is on no node yet.
	ReasonUnscheduled Reason = "unscheduled"
	// ReasonTerminating: it is being deleted.
	ReasonTerminating Reason = "terminating"
	// ReasonSucceeded: all of its containers have ended well.
	ReasonSucceeded Reason = "succeeded"
	// ReasonFailed: it has ended, and no validator says that this was for want of capture.
	ReasonFailed Reason = "failed"
)

// The reasons of the other verdicts.
const (
	// ReasonDrift: broken, the kernel differs from the record.
	ReasonDrift Reason = "drift"
	// ReasonNoRules: broken, the namespace holds nothing of ours, and there is no record.
	ReasonNoRules Reason = "no-rules"
	// ReasonValidator: broken, a validator said so.
	ReasonValidator Reason = "validator"
	// ReasonValidatorDied: suspect, a validator failed, and not by what says "not captured".
	ReasonValidatorDied Reason = "validator-died"
	// ReasonContradiction: suspect, a validator said "not captured", and the kernel holds what it should.
	ReasonContradiction Reason = "contradiction"
	// ReasonForeignRules: suspect, the rules are in place, but another program's rules can change the outcome.
	ReasonForeignRules Reason = "foreign-rules"
	// ReasonNoRecord: suspect, the namespace holds something else than would be planned today, which may well be what was meant when
	// it was applied: there is no record.
	ReasonNoRecord Reason = "no-record"
	// ReasonNotRecorded: suspect, the pod has a network, the plugin has no record that it captured the pod, and no validator has passed. The
	// pod was started without the plugin, or its record is lost.
	ReasonNotRecorded Reason = "not-recorded"
	// ReasonAnnotationsChanged: changed, keys of the pod that the plan was made from have other values since, or decide that it would
	// be left alone.
	ReasonAnnotationsChanged Reason = "annotations-changed"
	// ReasonPlanChanged: changed, the plan of today differs and nothing in the pod explains it; the facts of the node or the operator's
	// settings do.
	ReasonPlanChanged Reason = "plan-changed"
	// ReasonPlannerNewer: outdated.
	ReasonPlannerNewer Reason = "planner-newer"
	// ReasonAsRecorded: healthy, the kernel holds what was recorded.
	ReasonAsRecorded Reason = "as-recorded"
	// ReasonRecorded: healthy, the plugin has recorded that it captured the pod. Nobody has looked whether the rules stand since then.
	ReasonRecorded Reason = "recorded"
	// ReasonAsToday: healthy, the kernel holds what would be planned today; there is no record.
	ReasonAsToday Reason = "as-today"
	// ReasonRepaired: healthy, the kernel holds what was recorded, and a validator's failure is older than that.
	ReasonRepaired Reason = "repaired"
	// ReasonValidated: healthy, a validator has passed.
	ReasonValidated Reason = "validated"
	// ReasonValidatorPending: pending, the validator hasn't ended yet.
	ReasonValidatorPending Reason = "validator-pending"
	// ReasonStarting: pending, the pod has no network yet.
	ReasonStarting Reason = "starting"
	// ReasonEnding: pending, the containers have ended for good, and nothing is recorded of the pod, whose record goes with its network.
	ReasonEnding Reason = "ending"
	// ReasonWrongUID: unknown, what was observed or recorded is another pod's.
	ReasonWrongUID Reason = "wrong-uid"
	// ReasonNoBaseline: unknown, the namespace was looked at, and there is no plan to compare it with.
	ReasonNoBaseline Reason = "no-baseline"
	// ReasonNotObserved: unknown, the pod has no validator, nobody has looked into its namespace, and what was recorded isn't known.
	ReasonNotObserved Reason = "not-observed"
)

// Evidence is one thing that was seen.
type Evidence struct {
	// From is where.
	From EvidenceKind
	// Text is a sentence without a full stop. What comes from the pod is quoted in it.
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
	// EvidenceAnnotations is a key of the pod that has changed since what was recorded.
	EvidenceAnnotations EvidenceKind = "annotations"
	// EvidencePlanner is the version of the program that planned.
	EvidencePlanner EvidenceKind = "planner"
)

// Has says whether there is evidence of the kind.
func (f Finding) Has(kind EvidenceKind) bool {
	return slices.ContainsFunc(f.Evidence, func(e Evidence) bool { return e.From == kind })
}

// String is verdict, reason, detail and evidence in one line.
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
