// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
)

// pass evaluates all tables of all plans with entries in the hook, and returns the threads that
// come through.
func (e *engine) pass(hook interception.Hook, ts threads) threads {
	for _, stage := range lower.Schedule(hook, e.net.Plans) {
		switch stage.Kind {
		case lower.Asking:
			ts = e.askBase(hook, stage.Bases[0], ts)
		case lower.Tracking:
			ts = e.track(ts)
		case lower.Translating:
			ts = e.askNAT(hook, stage.Bases, ts)
		}
	}
	return ts
}

// askBase evaluates a plan's table at one priority. Afterwards, in Output, the kernel routes
// packets with a new mark again.
func (e *engine) askBase(hook interception.Hook, b lower.PlacedBase, ts threads) threads {
	p := passage{engine: e, hook: hook}
	on := p.ask(b, ts)
	e.add(&on, p.accepted.list...)
	if hook == interception.Output {
		on = e.rerouted(on)
	}
	return on
}

// askNAT evaluates the nat tables of all plans for flows that the hook can still change, and gives
// the packets the addresses that their flows are bound to.
func (e *engine) askNAT(hook interception.Hook, bases []lower.PlacedBase, ts threads) threads {
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

// rerouted is reroute, if there are routes.
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

// ask evaluates the entries of a base, in order, and returns the undecided threads.
func (p *passage) ask(b lower.PlacedBase, ts threads) threads {
	t := p.tables[b.Number]
	for _, i := range b.Entries {
		ts = p.rule(t, t.entries[i], ts, nil) // jumps return nothing
	}
	return ts
}

// chain evaluates the rules of a chain in order, and returns the threads that come through or
// return.
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
	met := never
	asked := r
	_, opaque := r.Action.(interception.Opaque)
	// Only the decoded parts that are the same in every hook count.
	if opaque {
		asked = &rule{asked: r.asked}
		asked.Match = interception.Match{Family: r.Match.Family, L4: r.Match.L4, Src: r.Match.Src, Dst: r.Match.Dst}
	}
	for _, each := range ts.list {
		meets, rest := p.split(each, p.matches(asked, each))
		if p.watch != nil {
			met = p.or(met, meets.where)
		}
		p.add(&on, rest)
		p.add(&matched, meets)
	}
	if p.watch != nil {
		p.watch(r, met)
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
