// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
)

// verdict is the decision of a rule, a chain or a table.
type verdict uint8

const (
	undecided  verdict = iota
	returned           // ends the chain
	accepted           // ends this plan's evaluation at this priority
	translated         // ends the table of all plans: the connection has its address
	dropped            // dropped and those below end the walk
	rejected
	unroutable
	unknown
)

// ends reports whether the walk ends.
func (v verdict) ends() bool { return v >= dropped }

// verdict returns the Verdict of a packet whose walk ends here.
func (v verdict) verdict() Verdict {
	return map[verdict]Verdict{dropped: Dropped, rejected: Rejected, unroutable: Unroutable, unknown: Unknown}[v]
}

// pass evaluates all tables of all plans that have entries in the hook, with connection tracking
// and nat in their places. It returns undecided if the packet comes through.
func (w *walk) pass(hook interception.Hook) verdict {
	for _, stage := range lower.Schedule(hook, w.network.Plans) {
		v := undecided
		switch stage.Kind {
		case lower.Asking:
			v = w.askBase(hook, stage.Bases[0])
		case lower.Tracking:
			w.track()
		case lower.Translating:
			v = w.askNAT(hook, stage.Bases)
		}
		if v.ends() {
			return v
		}
	}
	return undecided
}

// askBase evaluates a plan's table at one priority. Afterwards the kernel routes a packet with a
// new mark in Output again.
func (w *walk) askBase(hook interception.Hook, b lower.PlacedBase) verdict {
	mark, since := w.header.Mark, len(w.path)
	if v := w.ask(hook, b); v.ends() {
		return v
	}
	if hook == interception.Output && w.header.Mark != mark && !w.reroute(since) {
		return unroutable
	}
	return undecided
}

// askNAT evaluates the nat tables of all plans if the hook can still change the flow, and then
// gives the packet the addresses that its flow is bound to. Connection tracking settles a flow once
// for the destination (Prerouting, Output) and once for the source (Input, Postrouting), whether or
// not a rule applies. Therefore a packet that left by lo does not meet nat again when it comes back
// (net/netfilter/nf_nat_core.c, nf_nat_inet_fn).
func (w *walk) askNAT(hook interception.Hook, bases []lower.PlacedBase) verdict {
	if w.flow == nil {
		return undecided
	}
	settled := &w.flow.DstSettled
	if hook == interception.Input || hook == interception.Postrouting {
		settled = &w.flow.SrcSettled
	}
	dst, since := w.header.Dst.Addr(), len(w.path)
	if !*settled && w.state() == interception.StateNew {
		*settled = true
		for _, b := range bases {
			v := w.ask(hook, b)
			if v.ends() {
				return v
			}
			if v == translated {
				break
			}
		}
	}
	w.translate(hook)
	if hook == interception.Output && w.header.Dst.Addr() != dst && !w.reroute(since) {
		return unroutable
	}
	return undecided
}

// ask evaluates the entries of a base, in order.
func (w *walk) ask(hook interception.Hook, b lower.PlacedBase) verdict {
	at := place{walk: w, plan: b.Plan, table: b.Table, hook: hook}
	for _, i := range b.Entries {
		e := b.Table.Entries[i]
		jump := interception.Rule{ID: e.ID, Match: e.Match, Action: interception.Jump{Chain: e.Chain}, Why: e.Why}
		if v := at.rule("", jump); v != undecided {
			return v
		}
	}
	return undecided
}

// place is the walk's position in the rules.
type place struct {
	*walk
	plan  *interception.Plan
	table interception.Table
	hook  interception.Hook
}

// chain evaluates the rules of a chain in order. Without a decision, control returns to the calling
// chain.
func (p place) chain(name interception.ChainName) verdict {
	chain, _ := p.table.Chain(name) // a valid plan has it
	for _, rule := range chain.Rules {
		if v := p.rule(name, rule); v == returned {
			return undecided
		} else if v != undecided {
			return v
		}
	}
	return undecided
}

// rule performs a rule if it matches, and records it. If the match is unknown, so is every later
// decision, unless the rule has no effect.
func (p place) rule(chain interception.ChainName, rule interception.Rule) verdict {
	answer := p.matches(p.plan, rule.Match)
	_, logs := rule.Action.(interception.Log)
	if answer == no || answer == unsure && logs {
		return undecided
	}
	step := Step{
		Namespace: p.network.Name, Hook: p.hook, In: p.in, Out: p.out,
		Owner: p.plan.Owner, Table: p.table.Kind, Chain: chain, Rule: rule, Before: p.header,
	}
	v := unknown
	if answer == yes {
		v = p.do(rule.Action)
	}
	step.After = p.header
	p.path = append(p.path, step)
	if jump, ok := rule.Action.(interception.Jump); ok && v == undecided {
		return p.chain(jump.Chain)
	}
	return v
}
