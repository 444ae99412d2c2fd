// SPDX-License-Identifier: Apache-2.0

package interception

import "slices"

// whyDrained is the reason for the rules that Draining puts in the place of others.
const whyDrained = "nothing new is captured any more"

// Draining returns the plan for the end of a plan's life: nothing new is captured, and what was
// captured goes on. To apply it, wait until the proxy has no connection of the pod any more, and
// then remove it, cuts no connection off. To remove the plan at once would: with the last nat chain
// of a namespace the kernel stops translating.
//
// In nat, each rule that translates is replaced by one that leaves its packets alone, so that the
// chains and their jumps stay. It tests for new connections, which are the only ones that nat is
// asked about: without a rule that needs it, the kernel stops tracking connections. In mangle, a
// rule before the first [TProxyTo] leaves alone what opens a connection. Marks, routes and policy
// rules, by which packets of captured connections find their way, stay as they are. A plan that
// captures nothing is returned unchanged. Draining accepts recorded plans as well as new ones, and
// the plans of [Plan.Sparing].
func (p *Plan) Draining() *Plan {
	draining := &Plan{Owner: p.Owner, Objects: slices.Clone(p.Objects)}
	changed := false
	for i, object := range draining.Objects {
		if table, is := object.(Table); is && table.drain() {
			draining.Objects[i], changed = table, true
		}
	}
	if !changed {
		return p
	}
	return draining
}

// drain makes the table one that captures nothing new, in a copy of its chains. It reports whether
// the table did.
func (t *Table) drain() (changed bool) {
	t.Chains = slices.Clone(t.Chains)
	for i := range t.Chains {
		chain := &t.Chains[i]
		switch t.Kind {
		case NAT:
			chain.Rules = slices.Clone(chain.Rules)
			for j, rule := range chain.Rules {
				if translates(rule.Action) {
					chain.Rules[j], changed = rule.drained(), true
				}
			}
		case Mangle:
			at := slices.IndexFunc(chain.Rules, func(r Rule) bool { _, hands := r.Action.(TProxyTo); return hands })
			if at < 0 || at > 0 && chain.Rules[at-1].Why == whyDrained {
				continue
			}
			drained := Rule{ID: "tproxy.drain." + RuleID(chain.Name), Match: Match{State: Is(StateNew)}, Action: Return{}, Why: whyDrained}
			chain.Rules, changed = slices.Insert(slices.Clone(chain.Rules), at, drained), true
		case Raw, Filter:
		}
	}
	return changed
}

// drained returns a rule of nat that leaves alone what the rule translates.
func (r Rule) drained() Rule {
	if !r.Match.State.Present() {
		r.Match.State = Is(StateNew | StateRelated)
	}
	r.Action, r.Why = Return{}, whyDrained
	return r
}

// translates reports whether the kernel changes the addresses of the connections that an action
// decides about.
func translates(a Action) bool {
	switch a := a.(type) {
	case RedirectTo, DNATTo:
		return true
	case SNATTo:
		return !a.Keep
	default:
		return false
	}
}
