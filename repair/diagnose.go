// SPDX-License-Identifier: Apache-2.0

package repair

// Diagnose reports whether a pod is captured as intended, and the evidence. It asks these questions
// in order; the first one with an answer decides:
//
//   - Is the pod ours? The [Mesh] decides which pods are in the mesh. The pod must also be on the
//     node, and alive. A pod with a record stays ours if it has opted out since, or lost the
//     injector's annotation. A failed pod is over, unless it is never restarted and its
//     validator's only end made it fail: such a pod is seen in no other state.
//   - Does the kernel differ from the record? Then the pod is broken. Without a record, it is
//     broken if the namespace holds nothing although there is something to apply.
//   - Did a validator report "not captured"? Then the pod is broken, unless the kernel holds what
//     it should. In that case, a record newer than the validator's end means that the pod was
//     repaired since; otherwise kernel and validator contradict each other, and the pod is suspect.
//   - Can other programs' rules change the outcome, does a namespace without a record differ from
//     today's plan, or did a validator fail in another way? Then the pod is suspect.
//   - Does the kernel hold what it should, or did a validator pass? Then the pod is healthy, unless
//     today's plan differs from the recorded one: then it is changed or outdated. It is changed
//     wherever a key of the pod explains the difference, also under another version of the planner.
//   - Otherwise the records decide, if they were read. A pod with a record was captured when it
//     started, and is healthy as far as is known. A pod without one was started without the plugin,
//     and is suspect.
//   - Otherwise the pod is pending, if it is too early to decide, or unknown.
//
// Observations of a pod whose network is not set up yet, or is removed, do not count: the runtime
// may not have called the plugin.
func Diagnose(pod Pod, c Criteria) Finding {
	d := diagnosis{pod: pod, criteria: c, finding: Finding{Of: pod.Target()}}
	d.run = validate(pod, c.Validators)
	if record := c.Observed.Record; record != nil && record.Plan != nil && pod.UID != "" && record.UID == pod.UID {
		d.record = record
	}
	if reason, detail, isNot := d.notOurs(); isNot {
		d.finding.Verdict, d.finding.Reason, d.finding.Detail = NotOurs, reason, detail
		return d.finding
	}
	if d.run.outcome == blamed || d.run.outcome == died {
		d.say(EvidenceValidator, d.run.String())
	}
	d.compare()
	d.since()
	d.finding.Verdict, d.finding.Reason = d.conclude()
	if d.finding.Verdict == Broken {
		d.remedy()
	}
	return d.finding
}

type diagnosis struct {
	pod      Pod
	criteria Criteria
	finding  Finding
	run      run
	record   *Record    // the record of this very pod
	kernel   comparison // the namespace compared with the baseline
	change   Reason     // what has changed since the record; may be empty
	leftNow  string     // why the mesh would leave a recorded pod alone now
}

func (d *diagnosis) say(from EvidenceKind, text string) {
	d.finding.Evidence = append(d.finding.Evidence, Evidence{from, text})
}

// notOurs reports whether the pod is not ours, and why.
func (d *diagnosis) notOurs() (reason Reason, detail string, isNot bool) {
	switch decision := d.criteria.decide(d.pod.Pod); {
	case decision.Capture:
	case d.record != nil && decision.OfPod:
		d.leftNow = decision.String()
	default:
		d.finding.OfPod = decision.OfPod
		return decision.Reason, decision.Detail, true
	}
	switch {
	case d.pod.NodeName == "":
		return ReasonUnscheduled, "", true
	case d.criteria.Node != "" && d.pod.NodeName != d.criteria.Node:
		return ReasonOtherNode, d.pod.NodeName, true
	case !d.pod.DeletionTimestamp.IsZero():
		return ReasonTerminating, "", true
	case d.pod.Phase == PhaseSucceeded:
		return ReasonSucceeded, "", true
	case d.pod.Phase == PhaseFailed && !d.failedByValidator():
		return ReasonFailed, "", true
	}
	return "", "", false
}

// failedByValidator reports whether the validator's end made the pod fail. A pod whose containers
// are restarted fails for other reasons: it is evicted, or reaches its deadline.
func (d *diagnosis) failedByValidator() bool {
	return d.pod.RestartPolicy == RestartNever && d.run.outcome == blamed && !d.run.last
}

func (d *diagnosis) conclude() (Verdict, Reason) {
	switch d.kernel {
	case drifted:
		return Broken, ReasonDrift
	case bare:
		return Broken, ReasonNoRules
	case disturbed, unlikeToday, asRecorded, asToday, foreignNamespace, withoutBaseline, notObserved:
	}
	switch {
	case d.run.outcome == blamed:
		return d.blamed()
	case d.kernel == disturbed:
		return Suspect, ReasonForeignRules
	case d.kernel == unlikeToday:
		return Suspect, ReasonNoRecord
	case d.kernel == asRecorded:
		return d.healthy(ReasonAsRecorded)
	case d.kernel == asToday:
		return d.healthy(ReasonAsToday)
	case d.run.outcome == died:
		return Suspect, ReasonValidatorDied
	case d.run.outcome == passed:
		return d.healthy(ReasonValidated)
	default:
		return d.noAnswer()
	}
}

// blamed weighs a validator's "not captured" against the kernel.
func (d *diagnosis) blamed() (Verdict, Reason) {
	end := d.run.end.FinishedAt
	switch {
	case d.kernel == asRecorded && !end.IsZero() && end.Before(d.record.Time):
		return d.healthy(ReasonRepaired)
	case d.kernel == asRecorded, d.kernel == asToday:
		return Suspect, ReasonContradiction
	default:
		return Broken, ReasonValidator
	}
}

// healthy returns the verdict on a captured pod. What has changed since the record takes precedence
// over the reason.
func (d *diagnosis) healthy(reason Reason) (Verdict, Reason) {
	if d.change == "" {
		return Healthy, reason
	}
	if d.change == ReasonPlannerNewer {
		return Outdated, d.change
	}
	return Changed, d.change
}

// noAnswer returns the verdict on a pod if neither the kernel nor a validator gives evidence.
func (d *diagnosis) noAnswer() (Verdict, Reason) {
	switch {
	case d.run.outcome == notRun:
		return Pending, ReasonValidatorPending
	case !d.pod.hasNetwork():
		return Pending, ReasonStarting
	case d.record != nil && d.kernel == notObserved:
		return d.healthy(ReasonRecorded)
	case d.criteria.Observed.Unrecorded && d.pod.ending():
		return Pending, ReasonEnding
	case d.criteria.Observed.Unrecorded:
		d.say(EvidenceRecord, "the plugin has not recorded that it captured the pod: the pod was started without the plugin, or the record is "+
			"lost; have the pod created again")
		return Suspect, ReasonNotRecorded
	case d.kernel == foreignNamespace:
		return Unknown, ReasonWrongUID
	case d.kernel == withoutBaseline:
		return Unknown, ReasonNoBaseline
	default:
		return Unknown, ReasonNotObserved
	}
}

// remedy sets the plan that would repair a broken pod in place, or why there is no such plan.
func (d *diagnosis) remedy() {
	switch {
	case d.pod.ended():
		d.finding.NoPlan = "the pod has ended, and has no network namespace any more"
	case d.kernel == drifted:
		d.finding.Plan = d.record.Plan
	case d.kernel == bare:
		d.finding.Plan = d.criteria.Observed.Today
	case d.kernel == disturbed:
		d.finding.NoPlan = "its rules are in place, but another program's rules are in the way: remove those"
	case d.kernel == unlikeToday:
		d.finding.NoPlan = "there is no record, and the namespace holds rules that may be what was meant: have the pod created again"
	case d.kernel == withoutBaseline:
		d.finding.NoPlan = "there is neither a record nor a plan of today"
	default:
		d.finding.NoPlan = "its namespace has not been observed: observe it, and diagnose again"
	}
}
