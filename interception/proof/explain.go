// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// Effect is what a rule does to packets.
type Effect uint8

// The effects.
const (
	// LeftAlone: they keep their destination and link.
	LeftAlone Effect = iota + 1
	// Captured: a rule redirects them, or hands them to a transparent proxy, whether or not a
	// socket listens.
	Captured
	// Rerouted: their mark sends them to their destination by another link.
	Rerouted
	// Dropped and Rejected: a rule discards them.
	Dropped
	Rejected
	// Undecoded: they meet a rule that could not be decoded.
	Undecoded
)

// String returns the effect in lower case.
func (e Effect) String() string {
	names := [...]string{"no effect", "left alone", "captured", "rerouted", "dropped", "rejected", "unknown"}
	if int(e) >= len(names) {
		return names[0]
	}
	return names[e]
}

// Region is the set of all packets of one direction that one rule decides in one way.
type Region struct {
	// Direction is Out or In.
	Direction Direction
	// Effect is what the rule does to them.
	Effect Effect
	// Decides is the deciding rule, as in [trace.Outcome.Decisive]; nil without one.
	Decides *Place
	// When lists the ways to that rule: the conditions of the rule and of the entry and jumps that
	// lead to it. The packets of the region meet those of one way, and no earlier rule decided
	// them. It is empty if no rule decides.
	When [][]interception.Match
	// OverLoopback reports whether the rule sees packets of a socket that come in again by lo. Its
	// conditions then apply to the packets as they come in: to what the rules of the hook named
	// Output made of them.
	OverLoopback bool
	// Example is a packet of the region.
	Example trace.Packet
	// Outcome is where the example ends.
	Outcome trace.Outcome

	order int
	where ref
}

// Explanation is a partition of all packets of a query into regions.
type Explanation struct {
	// Regions are ordered by direction, sockets first, then as in the plan; the packets that no
	// rule decides come last.
	Regions []Region
	// World is the world of the examples.
	World trace.World
}

// Explain describes the effect of a plan, or state, on the packets of a query: which rule decides,
// for which packets, and why the rule exists. It is about rules, not about where packets end: a
// missing listener or route makes no region, and packets that routing discards before a rule
// decides are left out, as are marks, zones and logging.
//
// The errors are those of invalid rules ([interception.ErrPlan]) or worlds ([trace.ErrWorld]),
// [ErrQuery] for a link that the world does not have, and [ErrTooLarge].
func Explain[R Rules](rules R, q Query, o Options) (Explanation, error) {
	s, err := subjectOf(rules)
	if err != nil {
		return Explanation{}, fmt.Errorf("explain: %w", err)
	}
	found, err := explain(s, q, o)
	if err != nil {
		return Explanation{}, fmt.Errorf("explain: %w", err)
	}
	return found, nil
}

func explain(s subject, q Query, o Options) (Explanation, error) {
	live := &members{}
	e, world, err := newQuestion(o.maxNodes()).prepare(s, o.world(s.plans()...), live)
	if err != nil {
		return Explanation{}, err
	}
	if err := e.checkLink(q.Link); err != nil {
		return Explanation{}, err
	}
	e.explaining = true
	explanation := Explanation{World: world}
	for _, r := range e.regions(e.walk(e.and(e.domain(), e.asks(q)))) {
		r, err := e.illustrated(r, e.consistent(live), world)
		if e.err != nil {
			return Explanation{}, e.err
		}
		if err != nil {
			return Explanation{}, err
		}
		explanation.Regions = append(explanation.Regions, r)
	}
	return explanation, e.err
}

// regions merges the threads that a rule decided in the same way.
func (e *engine) regions(ends []thread) []Region {
	type key struct {
		direction Direction
		effect    Effect
		rule      int
	}
	merged := map[key]ref{}
	for _, end := range ends {
		decisive := end.why.decisive(end.end.verdict)
		if decisive == 0 && end.end.verdict == trace.Unroutable {
			continue
		}
		effect := e.effect(end.state, decisive)
		in, out := e.split(end, e.variable(e.arrival))
		for _, part := range []choice[Direction]{{Out, out.where}, {In, in.where}} {
			if part.where != never {
				k := key{part.value, effect, decisive}
				merged[k] = e.or(merged[k], part.where)
			}
		}
	}
	var regions []Region
	for k, where := range merged {
		r := Region{Direction: k.direction, Effect: k.effect, order: k.rule, where: where}
		if k.rule == 0 {
			r.order = len(e.rules)
		} else {
			rule := &e.rules[k.rule]
			place := rule.place()
			r.Decides, r.When = &place, e.conditions(rule)
			r.OverLoopback = r.Direction == Out && e.inward(rule)
		}
		regions = append(regions, r)
	}
	slices.SortFunc(regions, func(a, b Region) int {
		return cmp.Or(cmp.Compare(a.Direction, b.Direction), cmp.Compare(a.order, b.order), cmp.Compare(a.Effect, b.Effect))
	})
	return regions
}

// decisive returns the rule that explains the outcome, as trace.Outcome.Decisive chooses it.
func (w reasons) decisive(v trace.Verdict) int {
	switch v {
	case trace.Dropped, trace.Rejected, trace.Unknown:
		return w.last
	case trace.Delivered, trace.Refused, trace.Sent, trace.Unroutable:
	}
	return cmp.Or(w.redirect, w.endNAT, w.ends)
}

// effect is the deciding rule's purpose, whether or not there is a listener.
func (e *engine) effect(s state, decisive int) Effect {
	switch e.rules[decisive].Action.(type) {
	case interception.RedirectTo, interception.DNATTo, interception.TProxyTo:
		return Captured
	}
	switch s.end.verdict {
	case trace.Dropped:
		return Dropped
	case trace.Rejected:
		return Rejected
	case trace.Unknown:
		return Undecoded
	case trace.Delivered, trace.Refused, trace.Sent, trace.Unroutable:
	}
	switch e.rules[decisive].Action.(type) {
	case interception.SetMark, interception.RestoreMark:
		return Rerouted
	default:
		return LeftAlone
	}
}

// inward reports whether entries of Prerouting or Input lead to a rule.
func (e *engine) inward(r *rule) bool {
	if r.chain == "" {
		return r.hook == interception.Prerouting || r.hook == interception.Input
	}
	return slices.ContainsFunc(e.callers(r), e.inward)
}

// callers returns the rules that jump to a rule's chain.
func (e *engine) callers(r *rule) []*rule {
	var all []*rule
	for i := range e.rules {
		caller := &e.rules[i]
		jump, ok := caller.Action.(interception.Jump)
		if ok && caller.plan == r.plan && caller.kind == r.kind && jump.Chain == r.chain {
			all = append(all, caller)
		}
	}
	return all
}

// conditions returns the conditions on each way to a rule.
func (e *engine) conditions(r *rule) [][]interception.Match {
	if r.chain == "" {
		return [][]interception.Match{{r.Match}}
	}
	var all [][]interception.Match
	for _, caller := range e.callers(r) {
		for _, way := range e.conditions(caller) {
			all = append(all, append(slices.Clone(way), r.Match))
		}
	}
	return all
}

// illustrated adds an example to a region.
func (e *engine) illustrated(r Region, consistent ref, world trace.World) (Region, error) {
	where := e.and(r.where, consistent)
	if where == never {
		where = r.where
	}
	v := values(e.witness(e.pleasant([]ref{where})))
	r.Example = e.packet(v)
	if r.Effect == Undecoded { // the trace does not contain such a rule
		return r, nil
	}
	world.Namespaces = slices.Clone(world.Namespaces)
	world.Namespaces[0].LiveSets = e.liveSets(v, world.Namespaces[0].Plans)
	var err error
	r.Outcome, err = trace.Trace(world, r.Example)
	return r, err
}
