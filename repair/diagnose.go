// SPDX-License-Identifier: Apache-2.0

package repair

// Diagnose says whether a pod is captured as it was meant to be, and what shows it. These are the questions, in their order; the first that
// has an answer decides:
//
//   - Is it ours? The [Mesh] says which pods are the mesh's; besides, it must be on the node, and alive. A pod with a record
//     that has opted out since, or lost the injector's annotation, is ours nevertheless. A pod that has failed is over, unless it is never
//     restarted and its validator's only end is what made it fail: that is the one way in which such a pod is seen at all.
//   - Does the kernel differ from the record? Then it is broken; so it is without a record, when the namespace holds nothing though there
//     is something to apply.
//   - Has a validator said "not captured"? Then it is broken, unless the kernel holds what it should: then the validator spoke of
//     the time before a repair, if the record is newer than its end, and else they contradict each other, which is suspect.
//   - Can rules of others change the outcome, does the namespace differ from today's plan without a record, has a validator failed
//     otherwise? Then it is suspect.
//   - Does the kernel hold what it should, or has a validator passed? Then it is healthy, unless the plan of today differs from the
//     recorded one: then it has changed, or is outdated. It is changed wherever a key of the pod explains it, also where the
//     planner is another one.
//   - Else the records decide, where they were read. With a record the pod was captured when it started, and is healthy as far as anyone
//     has looked. Without one it was started without the plugin, which is suspect.
//   - Else it is too early to tell, or nobody knows.
//
// What is observed of a pod that has no network yet, or no longer, does not count: the plugin may not have been called.
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

// diagnosis is a finding in the making.
type diagnosis struct {
	pod      Pod
	criteria Criteria
	finding  Finding
	run      run
	record   *Record    // the pod's own
	kernel   comparison // what the namespace is, beside the baseline
	change   Reason     // empty, or what has changed since the record
	leftNow  string     // why the pod would be left alone now, though it has a record
}

func (d *diagnosis) say(from EvidenceKind, text string) {
	d.finding.Evidence = append(d.finding.Evidence, Evidence{from, text})
}

// notOurs says why the pod is none of ours, if it is none.
func (d *diagnosis) notOurs() (reason Reason, detail string, isNot bool) {
	switch decision := d.criteria.decide(d.pod.Pod); {
	case decision.Captured:
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

// failedByValidator says whether the validator's end was the pod's. Where containers are restarted, a pod fails for other reasons: it is
// evicted, or its time is up.
func (d *diagnosis) failedByValidator() bool {
	return d.pod.RestartPolicy == RestartNever && d.run.outcome == blamed && !d.run.last
}

// conclude weighs what was found.
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

// healthy is the verdict about a pod that is captured, for the reason or for what has changed since.
func (d *diagnosis) healthy(reason Reason) (Verdict, Reason) {
	if d.change == "" {
		return Healthy, reason
	}
	if d.change == ReasonPlannerNewer {
		return Outdated, d.change
	}
	return Changed, d.change
}

// noAnswer is the verdict about a pod of which nothing speaks.
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

// remedy says what would repair a broken pod in place.
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
		d.finding.NoPlan = "nobody has looked into its namespace: observe it, and diagnose again"
	}
}
