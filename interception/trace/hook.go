// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
)

// verdict is what a rule, a chain or a table says about the packet.
type verdict uint8

const (
	undecided  verdict = iota
	returned           // ends the chain
	accepted           // ends what this plan has at this priority
	translated         // ends the table of all plans: the connection has its address
	dropped            // this one and the following end the walk
	rejected
	unroutable
	unknown
)

// ends reports whether the walk ends.
func (v verdict) ends() bool { return v >= dropped }

// verdict is what becomes of a packet whose walk ends so.
func (v verdict) verdict() Verdict {
	return map[verdict]Verdict{dropped: Dropped, rejected: Rejected, unroutable: Unroutable, unknown: Unknown}[v]
}

// pass asks all tables of all plans that have a part in the hook, and has connection tracking and
// nat do theirs where they come. It is undecided when the packet comes through.
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

// askBase asks what a plan has at one priority. Behind it the kernel routes again what has another
// mark in Output.
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

// askNAT asks the nat of all plans for what it can change in the hook, when that is still open for
// the flow, and then gives the packet the addresses that its flow is bound to. Connection tracking
// settles a flow once for the destination (Prerouting, Output) and once for the source (Input,
// Postrouting), whether a rule applies or not: that is why what left by lo is not asked again when
// it comes back (net/netfilter/nf_nat_core.c, nf_nat_inet_fn).
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

// ask asks the entries of a base, in order.
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

// place is where in the rules the walk stands.
type place struct {
	*walk
	plan  *interception.Plan
	table interception.Table
	hook  interception.Hook
}

// chain asks the rules of a chain in order. One that decides nothing returns to the one that jumped
// there.
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

// rule performs a rule if it matches, and records it. When that cannot be known, nothing behind it
// can, unless it has no effect.
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
