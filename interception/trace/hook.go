// SPDX-License-Identifier: Apache-2.0

package trace

import "github.com/meshcni/meshcni/interception"

// verdict is what a rule, a chain or a table says about the packet.
type verdict uint8

const (
	undecided  verdict = iota
	returned           // ends the chain
	accepted           // ends the table of this plan
	translated         // ends the table of all plans: the connection has its address
	dropped            // ends the walk
)

// tablesOf are the tables in the order in which a hook asks them: by priority, which puts nat behind filter where it could change
// sources (linux/netfilter_ipv4.h, NF_IP_PRI_NAT_SRC). Input is the only such hook that has both.
func tablesOf(hook interception.Hook) []interception.TableKind {
	if hook == interception.Input {
		return []interception.TableKind{interception.Mangle, interception.Filter, interception.NAT}
	}
	return interception.TableKinds()
}

// passes asks all tables of all plans that have a part in the hook, and reports whether the packet comes through.
func (w *walk) passes(hook interception.Hook) bool {
	for _, kind := range tablesOf(hook) {
		if kind == interception.NAT && !w.binds(hook) {
			continue
		}
		for _, plan := range w.namespace.Plans {
			v := w.askPlan(plan, hook, kind)
			if v == dropped {
				return false
			}
			if v == translated {
				break
			}
		}
	}
	return true
}

// binds settles what the hook's nat can change, and reports whether that was still open. Connection tracking does so once for the
// destination (Prerouting, Output) and once for the source (Input, Postrouting), whether a rule applies or not: that is why
// what left by lo is not asked again when it comes back (net/netfilter/nf_nat_core.c, nf_nat_inet_fn).
func (w *walk) binds(hook interception.Hook) bool {
	bound := &w.boundDst
	if hook == interception.Input || hook == interception.Postrouting {
		bound = &w.boundSrc
	}
	unsettled := !*bound
	*bound = true
	return unsettled
}

// askPlan asks the plan's entries in the hook, in order.
func (w *walk) askPlan(plan *interception.Plan, hook interception.Hook, kind interception.TableKind) verdict {
	for table := range plan.Tables() {
		if table.Kind != kind {
			continue
		}
		at := place{walk: w, plan: plan, table: table, hook: hook}
		for _, e := range table.Entries {
			if e.Hook != hook || !w.matches(plan, e.Match) {
				continue
			}
			jump := interception.Rule{ID: e.ID, Match: e.Match, Action: interception.Jump{Chain: e.Chain}, Why: e.Why}
			if v := at.do("", jump); v != undecided {
				return v
			}
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

// ask asks the rules of a chain in order. A chain that decides nothing returns to the one that jumped there.
func (p place) ask(name interception.ChainName) verdict {
	chain, _ := p.table.Chain(name) // a valid plan has it
	for _, rule := range chain.Rules {
		if !p.matches(p.plan, rule.Match) {
			continue
		}
		switch v := p.do(name, rule); v {
		case undecided:
		case returned:
			return undecided
		case accepted, translated, dropped:
			return v
		}
	}
	return undecided
}

// do performs a rule that matches, and records it.
func (p place) do(chain interception.ChainName, rule interception.Rule) verdict {
	step := Step{
		Namespace: p.namespace.Name, Hook: p.hook, In: p.in, Out: p.out,
		Owner: p.plan.Owner, Table: p.table.Kind, Chain: chain, Rule: rule, Before: p.header,
	}
	v := undecided
	switch action := rule.Action.(type) {
	case interception.Accept:
		v = accepted
	case interception.Return:
		v = returned
	case interception.Drop:
		v = dropped
	case interception.RedirectTo:
		v = p.redirect(action)
	}
	step.After = p.header
	p.path = append(p.path, step)
	if jump, ok := rule.Action.(interception.Jump); ok {
		return p.ask(jump.Chain)
	}
	return v
}
