// SPDX-License-Identifier: Apache-2.0

package interception

import "slices"

// whySpared is the reason for the rules that leave older connections alone.
const whySpared = "connections that were there before stay as they are"

// older matches packets that do not open a connection.
func older() Match { return Match{L4: TCP().NotFlags(Opening())} }

// Sparing returns the plan for a running pod, whose connections are older than the plan. Connection
// tracking takes the first packet that it sees of such a connection for the start of a new one; a
// redirect would reset it. Sparing accepts recorded plans as well as new ones.
//
// It adds a rule that leaves alone every packet that does not open a connection: at the start of
// each nat chain that a hook leads into, and in mangle before the first rule that hands packets to
// the proxy ([TProxyTo]). A plan that has those rules already is returned unchanged. Both plans
// capture new connections alike.
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

// IsSparing reports whether [Plan.Sparing] returns the plan unchanged.
func (p *Plan) IsSparing() bool { return p.Sparing() == p }

// spareAt returns the index and id of the rule that leaves older connections alone. The rule is not
// needed if the chain has it, if no hook leads into the nat chain, or if the mangle chain hands
// nothing to the proxy.
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

// spares reports whether the rule leaves alone packets that do not open a connection.
func (r Rule) spares() bool {
	_, returns := r.Action.(Return)
	return returns && r.Match.String() == older().String()
}
