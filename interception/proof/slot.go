// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"slices"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
)

// slot is when a hook asks a chain of others: as a table of a kind, at a priority.
type slot struct {
	hook   interception.Hook
	kind   interception.TableKind
	offset int32
}

// slotOf is the place of a base chain beside the plan; false when nobody can say it.
func slotOf(c interception.ForeignChain, plan *interception.Plan) (slot, bool) {
	at := slices.IndexFunc(interception.Hooks(), func(h interception.Hook) bool { return h.String() == c.Hook })
	if at < 0 || c.Shared {
		return slot{}, false
	}
	s := slot{hook: interception.Hooks()[at]}
	var ok bool
	if s.kind, ok = kindAt(s.hook, c); !ok || !slices.Contains(s.kind.Hooks(), s.hook) {
		return slot{}, false
	}
	s.offset = c.Priority - lower.StandardBase(s.kind, s.hook).Priority
	for table := range plan.Tables() {
		if (table.Kind == interception.NAT) != (s.kind == interception.NAT) {
			continue
		}
		for _, e := range table.Entries {
			if e.Hook == s.hook && c.Priority == lower.StandardBase(table.Kind, s.hook).Priority+e.Offset {
				return slot{}, false // whichever was there last comes first
			}
		}
	}
	return s, true
}

// kindAt is the kind of the table that a hook asks when it asks a chain. All chains of type nat are asked at one time, in their order; what
// is asked where nat or connection tracking is may be so before or after.
func kindAt(hook interception.Hook, c interception.ForeignChain) (interception.TableKind, bool) {
	if c.Type == "nat" {
		return interception.NAT, true
	}
	p := c.Priority
	switch hook {
	case interception.Prerouting, interception.Output:
		switch {
		case p < lower.TrackingPriority:
			return interception.Raw, true
		case p > lower.TrackingPriority && p < lower.DestinationNATPriority:
			return interception.Mangle, true
		default:
			return interception.Filter, p > lower.DestinationNATPriority
		}
	case interception.Postrouting:
		return interception.Mangle, p < lower.SourceNATPriority
	case interception.Input, interception.Forward:
		if p <= lower.StandardBase(interception.Mangle, hook).Priority {
			return interception.Mangle, true
		}
		return interception.Filter, p < lower.SourceNATPriority
	}
	return 0, false
}

// taken is a rule of others as a plan in the slot may have it, else an opaque one for the same packets; false when it does nothing. The
// text says what an opaque one is.
func (s slot) taken(r interception.Rule, chainType, text string) (interception.Rule, bool) {
	opaque := interception.Opaque{Text: text}
	switch r.Action.(type) {
	case interception.Log:
		return r, false
	case interception.Opaque, interception.TProxyTo: // which in nf_tables lets pass what finds no socket
		r.Action = opaque
	case interception.SetMark, interception.RestoreMark:
		if s.hook == interception.Output && chainType != "route" { // nothing is routed again
			r.Action = opaque
		}
	}
	alone := func(match interception.Match, action interception.Action) bool {
		if _, ok := action.(interception.Jump); ok {
			action = interception.Return{}
		}
		return s.valid(interception.Rule{ID: r.ID, Match: match, Action: action, Why: r.Why})
	}
	if r.Action != interception.Action(opaque) && !alone(r.Match, r.Action) {
		r.Action = opaque
	}
	if !alone(r.Match, interception.Return{}) {
		r.Match = interception.Match{}
	}
	return r, true
}

// valid reports whether a plan can have the rule there.
func (s slot) valid(r interception.Rule) bool {
	plan := &interception.Plan{Owner: "others-0", Objects: []interception.Object{interception.Table{
		Kind:    s.kind,
		Entries: []interception.Entry{{ID: "others.jump", Hook: s.hook, Chain: "chain", Why: "a rule"}},
		Chains:  []interception.Chain{{Name: "chain", Rules: []interception.Rule{r}}},
	}}}
	return plan.Validate() == nil
}
