// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"fmt"
	"slices"
)

// foreign returns other programs' rules that can change the outcome in the plan's hooks.
func foreign(p *Plan, chains []ForeignChain) []Drift {
	var drifts []Drift
	for _, base := range chains {
		if base.Hook == "" || !slices.Contains(hooksOf(p), base.Hook) {
			continue
		}
		at := fmt.Sprintf("(hook %s, priority %d)", base.Hook, base.Priority)
		for _, chain := range reachable(base, chains) {
			for _, r := range chain.Rules {
				if changesOutcome(r.Action) || base.Shared && endsChain(r.Action) {
					drifts = append(drifts, Drift{
						Kind: DriftForeign, At: fmt.Sprintf("%s/%s %s", chain.Table, chain.Name, at), Got: conditions(r.Match, r.Action),
					})
				}
			}
		}
		if base.Policy == (Drop{}) {
			drifts = append(drifts, Drift{Kind: DriftForeign, At: fmt.Sprintf("%s/%s %s", base.Table, base.Name, at), Got: "policy drop"})
		}
	}
	return drifts
}

// hooksOf returns the plan's hooks, and the ingress and egress hooks that their packets pass.
func hooksOf(p *Plan) []string {
	var hooks []string
	for table := range p.Tables() {
		for _, e := range table.Entries {
			hooks = append(hooks, e.Hook.String())
			switch e.Hook {
			case Prerouting, Input:
				hooks = append(hooks, "ingress")
			case Output, Postrouting:
				hooks = append(hooks, "egress")
			case Forward:
				hooks = append(hooks, "ingress", "egress")
			}
		}
	}
	return hooks
}

// reachable returns a base chain and all chains that it jumps to, directly or not.
func reachable(base ForeignChain, chains []ForeignChain) []ForeignChain {
	reached := []ForeignChain{base}
	for i := 0; i < len(reached); i++ {
		for _, r := range reached[i].Rules {
			jump, ok := r.Action.(Jump)
			known := func(c ForeignChain) bool { return c.Table == base.Table && c.Name == string(jump.Chain) }
			if !ok || slices.ContainsFunc(reached, known) {
				continue
			}
			if to := slices.IndexFunc(chains, known); to >= 0 {
				reached = append(reached, chains[to])
			}
		}
	}
	return reached
}

// endsChain reports whether an action keeps packets from the rules after it in a hook's chain.
func endsChain(a Action) bool {
	return a == Accept{} || a == Return{}
}

// changesOutcome reports whether an action does more than end the walk through a chain or table.
func changesOutcome(a Action) bool {
	switch a.(type) {
	case Accept, Return, Log, Jump:
		return false
	default:
		return true
	}
}
