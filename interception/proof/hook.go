// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"cmp"
	"math"
	"slices"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/render"
)

// base is what a plan's table has at one priority of a hook.
type base struct {
	table    table
	priority int64
	entries  []*rule
}

// bases are those of all plans in a hook, in the order in which it asks them, and those of the nat tables apart. Of one plan's that stand
// at the same priority, the last comes first.
func (e *engine) bases(hook interception.Hook) (bases, nat []base) {
	var own []base
	for i, t := range e.tables {
		first := len(own)
		for _, r := range t.entries {
			if r.hook != hook {
				continue
			}
			priority := int64(render.StandardBase(t.kind, hook).Priority) + int64(r.offset)
			at := slices.IndexFunc(own[first:], func(o base) bool { return o.priority == priority })
			if at < 0 {
				at = len(own) - first
				own = append(own, base{table: t, priority: priority})
			}
			own[first+at].entries = append(own[first+at].entries, r)
		}
		if i+1 < len(e.tables) && e.tables[i+1].plan == t.plan {
			continue
		}
		for _, b := range slices.Backward(own) {
			if b.table.kind == interception.NAT {
				nat = append(nat, b)
			} else {
				bases = append(bases, b)
			}
		}
		own = nil
	}
	byPriority := func(a, b base) int { return cmp.Compare(a.priority, b.priority) }
	slices.SortStableFunc(bases, byPriority)
	slices.SortStableFunc(nat, byPriority)
	return bases, nat
}

// pass asks all tables of all plans that have a part in the hook, and returns the threads that come through.
func (e *engine) pass(hook interception.Hook, ts threads) threads {
	bases, nat := e.bases(hook)
	before := func(priority int64) {
		for len(bases) > 0 && bases[0].priority <= priority {
			ts, bases = e.askBase(hook, bases[0], ts), bases[1:]
		}
	}
	natPriority := int64(srcNATPriority)
	if hook == interception.Prerouting || hook == interception.Output {
		before(conntrackPriority)
		ts, natPriority = e.track(ts), dstNATPriority
	}
	before(natPriority)
	if hook != interception.Forward {
		ts = e.askNAT(hook, nat, ts)
	}
	before(math.MaxInt64)
	return ts
}

// askBase asks what a plan has at one priority. Behind it, in Output, the kernel routes again what has another mark.
func (e *engine) askBase(hook interception.Hook, b base, ts threads) threads {
	p := passage{engine: e, hook: hook}
	on := p.ask(b, ts)
	e.add(&on, p.accepted.list...)
	if hook == interception.Output {
		on = e.rerouted(on)
	}
	return on
}

// askNAT asks the nat of all plans for what it can change in the hook, when that is still open for the flow, and gives the packets
// the addresses that their flows are bound to.
func (e *engine) askNAT(hook interception.Hook, bases []base, ts threads) threads {
	source := hook == interception.Input || hook == interception.Postrouting
	var on, open threads
	for _, t := range ts.list {
		settled := t.flow.dstSettled
		if source {
			settled = t.flow.srcSettled
		}
		switch {
		case t.flow.kind == knownFlow:
			e.bound(&on, t, source)
		case t.flow.kind == noFlow || settled:
			e.add(&on, t)
		case source:
			t.flow.srcSettled = true
			e.add(&open, t)
		default:
			t.flow.dstSettled = true
			e.add(&open, t)
		}
	}
	for _, b := range bases {
		p := passage{engine: e, hook: hook}
		open = p.ask(b, open)
		e.add(&open, p.accepted.list...)
		e.add(&on, p.translated.list...)
	}
	e.add(&on, open.list...)
	if hook == interception.Output {
		on = e.rerouted(on)
	}
	return on
}

// bound gives packets of a known flow the addresses that it is bound to.
func (e *engine) bound(on *threads, t thread, source bool) {
	if source {
		changed, rest := e.split(t, e.variable(e.boundSrc))
		changed.src = own(flowSrc)
		e.add(on, changed, rest)
		return
	}
	changed, rest := e.split(t, e.variable(e.boundDst))
	changed.dst = own(flowDst)
	e.add(on, changed, rest)
}

// rerouted is reroute, where there are routes.
func (e *engine) rerouted(ts threads) threads {
	if e.watch != nil {
		return ts
	}
	ts = e.reroute(ts)
	var forgetful threads
	for _, t := range ts.list {
		t.why.changed = 0
		e.add(&forgetful, t)
	}
	return forgetful
}

// ask asks the entries of a base, in order, and returns the threads of which none decided.
func (p *passage) ask(b base, ts threads) threads {
	for _, entry := range b.entries {
		ts = p.rule(b.table, entry, ts, nil) // jumps return nothing
	}
	return ts
}

// chain asks the rules of a chain in order, and returns the threads that come through or back.
func (p *passage) chain(t table, name interception.ChainName, ts threads) threads {
	var returned threads
	for _, r := range t.chains[name] {
		if len(ts.list) == 0 && p.watch == nil {
			break
		}
		ts = p.rule(t, r, ts, &returned)
	}
	p.add(&returned, ts.list...)
	return returned
}

// rule performs a rule for the packets that match, and returns the threads that go on to the next.
func (p *passage) rule(t table, r *rule, ts threads, returned *threads) threads {
	var on, matched threads
	reached, met := never, never
	asked := r
	_, opaque := r.Action.(interception.Opaque)
	if opaque { // of what was decoded, only that counts which is the same in every hook
		asked = &rule{asked: r.asked}
		asked.Match = interception.Match{Family: r.Match.Family, L4: r.Match.L4, Src: r.Match.Src, Dst: r.Match.Dst}
	}
	for _, each := range ts.list {
		meets, rest := p.split(each, p.matches(asked, each))
		if p.watch != nil {
			reached, met = p.or(reached, each.where), p.or(met, meets.where)
		}
		p.add(&on, rest)
		p.add(&matched, meets)
	}
	if p.watch != nil {
		p.watch(r, reached, met)
		if opaque { // and nothing
			return ts
		}
	}
	if jump, ok := r.Action.(interception.Jump); ok {
		through := p.chain(t, jump.Chain, matched)
		p.add(&on, through.list...)
		return on
	}
	for _, each := range matched.list {
		p.do(r, each, &on, returned)
	}
	return on
}
