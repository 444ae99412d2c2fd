// SPDX-License-Identifier: Apache-2.0

package interception

import "slices"

// whySpared is the reason of the rules that leave older connections alone.
const whySpared = "connections that were there before stay as they are"

// older is what does not open a connection.
func older() Match { return Match{L4: TCP().NotFlags(Opening())} }

// Sparing returns the plan as it is applied to a pod that runs, whose connections are older than the plan: connection tracking takes the first
// packet of theirs that it sees for a new connection, and redirecting it would reset them. A recorded plan can be made sparing as well as a
// new one.
//
// To each chain of table nat that a hook leads into, and in mangle before the first rule that hands packets to the proxy ([TProxyTo]), it
// adds the rule that leaves alone what does not open a connection. A plan that has those rules is returned as it is. What is new is captured
// by both plans alike.
func (p *Plan) Sparing() *Plan {
	taken := map[RuleID]bool{}
	for _, rule := range p.Rules() {
		taken[rule.ID] = true
	}
	sparing := &Plan{Owner: p.Owner, Objects: slices.Clone(p.Objects)}
	changed := false
	for i, object := range sparing.Objects {
		if table, is := object.(Table); is {
			table.Chains = slices.Clone(table.Chains)
			for j, chain := range table.Chains {
				at, id, needed := table.spareAt(chain)
				if !needed {
					continue
				}
				if taken[id] {
					id += "." + RuleID(chain.Name)
				}
				taken[id], changed = true, true
				spare := Rule{ID: id, Match: older(), Action: Return{}, Why: whySpared}
				table.Chains[j].Rules = slices.Insert(slices.Clone(chain.Rules), at, spare)
			}
			sparing.Objects[i] = table
		}
	}
	if !changed {
		return p
	}
	return sparing
}

// IsSparing reports whether the plan leaves alone what is older than itself: whether [Plan.Sparing] returns it as it is.
func (p *Plan) IsSparing() bool { return p.Sparing() == p }

// spareAt is the place in a chain for the rule that leaves older connections alone, and its id; not needed where
// there is no such place, or the rule stands there.
func (t Table) spareAt(c Chain) (at int, id RuleID, needed bool) {
	switch t.Kind {
	case NAT:
		entry := slices.IndexFunc(t.Entries, func(e Entry) bool { return e.Chain == c.Name })
		if entry < 0 {
			return 0, "", false
		}
		id = "inbound.spare"
		if t.Entries[entry].Hook == Output {
			id = "outbound.spare"
		}
		return 0, id, len(c.Rules) == 0 || !c.Rules[0].spares()
	case Mangle:
		at = slices.IndexFunc(c.Rules, func(r Rule) bool { _, hands := r.Action.(TProxyTo); return hands })
		return at, "tproxy.spare", at == 0 || at > 0 && !c.Rules[at-1].spares()
	case Raw, Filter:
	}
	return 0, "", false
}

// spares says whether the rule leaves alone what does not open a connection.
func (r Rule) spares() bool {
	_, returns := r.Action.(Return)
	return returns && r.Match.String() == older().String()
}
