// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// The numbers for everything in doubt.
const (
	beyondID interception.RuleID = "beyond"
	doubtID  interception.RuleID = "observed"
	doubtWhy string              = "found in the kernel, and no plan can say it"
)

// engine walks all packets at once through a namespace, as trace.Trace walks one. Package trace
// documents the walk and cites the kernel's sources; here it applies to threads.
type engine struct {
	question
	net    *network
	tables []table
	rules  []rule // by their numbers, which start at 1
	// explaining makes threads keep the reasons for their ends.
	explaining bool
	// links are those that rules distinguish if there is no world; members are those of live sets.
	links   []linkName
	members *members
	routed  map[selectors]routing
	ended   threads
	// watch is called for every evaluated rule, with the packets that it decides; it may be nil.
	watch func(r *rule, matched ref)
	// doubt is the rule for whatever may do anything to any packet; nil without doubts.
	doubt *rule
	// beyond is the rule for packets that leave by one of the links to other namespaces, crossing.
	beyond   *rule
	crossing []linkName
}

// table is a table of a plan.
type table struct {
	kind    interception.TableKind
	entries []*rule
	chains  map[interception.ChainName][]*rule
}

// rule is an entry or a rule of a chain.
type rule struct {
	interception.Rule
	number int
	owner  interception.Owner
	plan   *interception.Plan
	kind   interception.TableKind
	hook   interception.Hook      // of an entry
	chain  interception.ChainName // "" of an entry
	index  int
	asked  map[field]ref
}

// field is a part of a match that concerns an address of the packet.
type field struct {
	name string
	from uint8
}

func newEngine(q question, n trace.Namespace, m *members) *engine {
	e := &engine{question: q, net: &network{n.Routing()}, rules: make([]rule, 1), members: m, routed: map[selectors]routing{}}
	total := 2
	for _, plan := range n.Plans {
		for t := range plan.Tables() {
			total += len(t.Entries)
			for _, c := range t.Chains {
				total += len(c.Rules)
			}
		}
	}
	e.rules = slices.Grow(e.rules, total) // rules are pointed to
	for _, plan := range n.Plans {
		for t := range plan.Tables() {
			e.tables = append(e.tables, e.table(plan, t))
		}
	}
	return e
}

func (e *engine) table(plan *interception.Plan, t interception.Table) table {
	made := table{kind: t.Kind, chains: map[interception.ChainName][]*rule{}}
	add := func(r rule) *rule {
		r.number, r.owner, r.plan, r.kind, r.asked = len(e.rules), plan.Owner, plan, t.Kind, map[field]ref{}
		e.rules = append(e.rules, r)
		return &e.rules[len(e.rules)-1]
	}
	for i, entry := range t.Entries {
		jump := interception.Rule{ID: entry.ID, Match: entry.Match, Action: interception.Jump{Chain: entry.Chain}, Why: entry.Why}
		made.entries = append(made.entries, add(rule{Rule: jump, hook: entry.Hook, index: i}))
	}
	for _, c := range t.Chains {
		made.chains[c.Name] = []*rule{}
		for i, r := range c.Rules {
			made.chains[c.Name] = append(made.chains[c.Name], add(rule{Rule: r, chain: c.Name, index: i}))
		}
	}
	return made
}

// doubting ends the walk at its start if there are doubts: then nothing is known of any packet.
func (e *engine) doubting(s subject) {
	doubts := s.doubts
	if e.net.Forwarding(interception.IPv4) || e.net.Forwarding(interception.IPv6) {
		doubts = slices.Concat(doubts, s.forwarding)
	}
	if len(doubts) == 0 {
		return
	}
	e.doubt = &rule{number: len(e.rules), owner: s.plan.Owner, plan: s.plan, Rule: interception.Rule{
		ID: doubtID, Action: interception.Opaque{Text: strings.Join(doubts, "; ")}, Why: doubtWhy,
	}}
	e.rules = append(e.rules, *e.doubt) // does not reallocate: newEngine grew by two more
}

// crosses makes unknown what becomes of packets that go on in another namespace of the world.
func (e *engine) crosses(s subject, world trace.World) {
	for _, l := range e.net.Links {
		if world.Crosses(l.Name) {
			e.crossing = append(e.crossing, l.Name)
		}
	}
	if len(e.crossing) == 0 {
		return
	}
	e.beyond = &rule{number: len(e.rules), owner: s.plan.Owner, plan: s.plan, Rule: interception.Rule{
		ID: beyondID, Action: interception.Opaque{Text: "in another namespace"}, Why: "packets go on in another namespace of the world",
	}}
	e.rules = append(e.rules, *e.beyond)
}

// send ends packets that leave by a link.
func (e *engine) send(t thread) {
	if slices.Contains(e.crossing, t.out) {
		e.stop(t, ending{verdict: trace.Unknown}, e.beyond)
		return
	}
	e.stop(t, ending{verdict: trace.Sent, link: t.out}, nil)
}

// stop ends a thread.
func (e *engine) stop(t thread, end ending, by *rule) {
	t.end = end
	if by != nil && (e.explaining || end.verdict == trace.Unknown) {
		t.why.last = by.number
	}
	e.finish(t)
}

// finish keeps the parts of a finished thread that its outcome consists of.
func (e *engine) finish(t thread) {
	final := state{end: t.end, why: t.why, taker: nobody}
	switch t.end.verdict {
	case trace.Delivered, trace.Refused, trace.Sent:
		final.src, final.dst, final.mark = t.src, t.dst, t.mark
		if t.end.verdict == trace.Delivered {
			final.taker = t.taker
		}
	case trace.Dropped, trace.Rejected, trace.Unroutable, trace.Unknown:
	}
	if t.flow.confirmed {
		final.flow = flow{kind: t.flow.kind, zone: t.flow.zone, mark: t.flow.mark}
		if t.flow.kind == newFlow { // which keeps how the packet was translated
			final.src, final.dst = t.src, t.dst
		}
	}
	if t.end.verdict == trace.Unknown {
		final = state{end: t.end, why: t.why, taker: nobody}
	}
	final.why.changed = 0
	e.add(&e.ended, thread{final, t.where})
}
