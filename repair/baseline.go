// SPDX-License-Identifier: Apache-2.0

package repair

import (
	"fmt"
	"maps"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// comparison is how a namespace compares with what it should be.
type comparison int

const (
	notObserved      comparison = iota
	foreignNamespace            // the observation belongs to another pod
	withoutBaseline             // there is no plan to compare with
	asRecorded
	asToday     // no record
	unlikeToday // no record, and the namespace holds something
	disturbed   // as recorded or as today, except for other programs' rules
	drifted     // unlike the record
	bare        // nothing of ours, no record, and something to apply
)

// compare compares the observation with the record, or without a record with today's plan.
func (d *diagnosis) compare() {
	seen := d.criteria.Observed
	if d.record == nil && seen.Record != nil {
		d.say(EvidenceRecord, fmt.Sprintf("the record is of another pod of this name, with uid %q", seen.Record.UID))
		d.kernel = foreignNamespace
	}
	if seen.State == nil || !d.pod.hasNetwork() {
		return
	}
	if d.pod.UID == "" || seen.UID != d.pod.UID {
		d.say(EvidenceKernel, fmt.Sprintf("the namespace that was observed is that of a pod with uid %q", seen.UID))
		d.kernel = foreignNamespace
		return
	}
	baseline := seen.Today
	if d.record != nil {
		baseline = d.record.Plan
	} else {
		d.say(EvidenceRecord, "nothing is recorded of the pod: its namespace is compared with what would be planned today")
	}
	d.kernel = d.beside(baseline, *seen.State)
}

// beside compares a state with the baseline.
func (d *diagnosis) beside(baseline *interception.Plan, state interception.State) comparison {
	switch {
	case baseline == nil:
		d.say(EvidenceKernel, "the namespace was observed, and there is no plan to compare it with")
		return withoutBaseline
	case state.Owner != baseline.Owner:
		d.say(EvidenceKernel, fmt.Sprintf("what was observed is %q's, and the plan is %q's", state.Owner, baseline.Owner))
		return withoutBaseline
	}
	drift := interception.Diff(baseline, state)
	d.finding.Drift = drift
	if len(drift) == 0 {
		return d.by(asRecorded, asToday)
	}
	d.say(EvidenceKernel, differences(drift))
	switch {
	case !slices.ContainsFunc(drift, func(x interception.Drift) bool { return x.Kind != interception.DriftForeign }):
		return disturbed
	case len(state.Objects) == 0 && len(state.Deviations) == 0:
		return d.by(drifted, bare)
	default:
		return d.by(drifted, unlikeToday)
	}
}

// by chooses by the baseline: the record, or else today's plan.
func (d *diagnosis) by(record, today comparison) comparison {
	if d.record != nil {
		return record
	}
	return today
}

func differences(drift []interception.Drift) string {
	if len(drift) == 1 {
		return drift[0].String()
	}
	return fmt.Sprintf("%d differences, of which the first is %s", len(drift), drift[0])
}

// since finds what has changed since the record was made.
func (d *diagnosis) since() {
	if d.record == nil {
		return
	}
	if d.leftNow != "" {
		d.change = ReasonAnnotationsChanged
		d.say(EvidenceAnnotations, "the pod would be left alone now: "+d.leftNow)
	}
	recorded, today := d.record.Plan, d.criteria.Observed.Today
	if today != nil && today.Fingerprint() == recorded.Fingerprint() {
		return
	}
	another := d.criteria.Planner != "" && d.criteria.Planner != d.record.Planner
	if another {
		d.say(EvidencePlanner, fmt.Sprintf("planned by version %q, but this is %q", d.record.Planner, d.criteria.Planner))
	}
	if today == nil {
		return
	}
	keys := changedKeys(recorded, today)
	for _, text := range keys {
		d.say(EvidenceAnnotations, text)
	}
	switch {
	case d.leftNow != "", len(keys) > 0:
		d.change = ReasonAnnotationsChanged
	case another:
		d.change = ReasonPlannerNewer
	default:
		d.change = ReasonPlanChanged
	}
}

// changedKeys returns the keys of the pod that have different values in the two plans' provenance.
// A default that has changed is the planner's.
func changedKeys(then, now *interception.Plan) []string {
	before, after := provenance(then), provenance(now)
	both := maps.Clone(before)
	maps.Copy(both, after)
	var changed []string
	for _, key := range slices.Sorted(maps.Keys(both)) {
		b, a := before[key], after[key]
		if b == a || ofPlanner(b) && ofPlanner(a) {
			continue
		}
		changed = append(changed, fmt.Sprintf("%s is now %s, but was %s", key, valueOf(a), valueOf(b)))
	}
	return changed
}

// provenance returns what a plan was made from, by key.
func provenance(p *interception.Plan) map[string]interception.Source {
	sources := map[string]interception.Source{}
	add := func(from []interception.Source) {
		for _, s := range from {
			sources[s.Key] = s
		}
	}
	for _, rule := range p.Rules() {
		add(rule.From)
	}
	for _, object := range p.Objects {
		switch o := object.(type) {
		case interception.Link:
			add(o.From)
		case interception.Address:
			add(o.From)
		case interception.Sysctl:
			add(o.From)
		case interception.Route:
			add(o.From)
		case interception.PolicyRule:
			add(o.From)
		case interception.Set:
			add(o.From)
		case interception.Table: // its rules are covered above
		}
	}
	return sources
}

// ofPlanner reports whether a value does not come from the pod: it is absent, a default, or the
// dialect's.
func ofPlanner(s interception.Source) bool {
	return s.Kind == "" || s.Kind == interception.SourceDefault || s.Kind == interception.SourceDialect
}

func valueOf(s interception.Source) string {
	switch {
	case s.Kind == "":
		return "of no account"
	case ofPlanner(s):
		return fmt.Sprintf("%q by default", s.Value)
	default:
		return fmt.Sprintf("%q", s.Value)
	}
}
