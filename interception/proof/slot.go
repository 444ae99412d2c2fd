// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"fmt"
	"slices"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
)

// slot is the position of a foreign chain in a hook: a kind of table and a priority.
type slot struct {
	hook   interception.Hook
	kind   interception.TableKind
	offset int32
}

// slotOf returns the slot of a base chain relative to the plan; false if it is unknown.
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
				return slot{}, false // the chain that was registered last comes first
			}
		}
	}
	return s, true
}

// kindAt returns the kind of table in whose place a hook runs a chain. All chains of type nat run
// at one time, in their order; a chain at the priority of nat or connection tracking may run before
// or after it.
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

// taken returns a foreign rule as a plan in the slot may have it, else an opaque one for the same
// packets; false if it does nothing. The text describes an opaque rule.
func (s slot) taken(r interception.Rule, chainType, text string) (interception.Rule, bool) {
	opaque := interception.Opaque{Text: text}
	switch r.Action.(type) {
	case interception.Log:
		return r, false
	// In nf_tables, TProxyTo lets packets pass if it finds no socket.
	case interception.Opaque, interception.TProxyTo:
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

// deviations returns those of a state as text, and as doubts those that may change where a packet
// ends.
func deviations(s interception.State) (all, doubts []string) {
	for _, d := range s.Deviations {
		text := d.At
		if d.Object != nil {
			text += fmt.Sprintf(" %+v", d.Object)
		}
		if d.Want != "" {
			text += ": want " + d.Want
		}
		if d.Got != "" {
			text += ": got " + d.Got
		}
		all = append(all, text)
		if !s.Dormant || d.Object != nil || d.Foreign { // else it belongs to a dormant table
			doubts = append(doubts, text)
		}
	}
	return all, doubts
}

// harm describes what in a base chain, or in the chains that it leads to, may change where a packet
// ends; true if nothing can.
func harm(base interception.ForeignChain, all []interception.ForeignChain) (text string, harmless bool) {
	if base.Policy != (interception.Accept{}) {
		return fmt.Sprintf("policy %v", base.Policy), false
	}
	reached := []interception.ForeignChain{base}
	for i := 0; i < len(reached); i++ {
		chain := reached[i]
		if chain.Shared && i > 0 {
			return chain.Name + " leads to the owner's chains", false
		}
		for at, r := range chain.Rules {
			if jump, ok := r.Action.(interception.Jump); ok {
				target := func(c interception.ForeignChain) bool { return c.Table == base.Table && c.Name == string(jump.Chain) }
				if to := slices.IndexFunc(all, target); to >= 0 {
					if !slices.ContainsFunc(reached, target) {
						reached = append(reached, all[to])
					}
					continue
				}
			}
			if changes(r.Action, base.Shared) {
				return fmt.Sprintf("%s[%d] %s -> %v", chain.Name, at, r.Match, r.Action), false
			}
		}
	}
	return "", true
}

// changes reports whether an action may change where a packet ends, in a chain that is shared with
// the owner or not.
func changes(a interception.Action, shared bool) bool {
	switch a.(type) {
	case interception.Log:
		return false
	case interception.Accept, interception.Return:
		return shared
	default:
		return true
	}
}
