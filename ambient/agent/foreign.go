// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
)

// ForeignChain is another program's base chain in a pod's network namespace. Packets pass it before
// the agent's rules.
type ForeignChain struct {
	// Table, Name, Hook and Priority are those of the chain, as in [interception.ForeignChain].
	Table, Name, Hook string
	Priority          int32
	// Rules are those of the chain, and of the chains that it jumps to, that can change what becomes
	// of a packet, as text: a hundred at most, and then how many more there are. "policy drop" is the
	// chain's own.
	Rules []string
	// Marks are those of the rules that set bits of the mesh's marks ([ambient.Numbers]).
	Marks []string
}

// question asks a worker for the chains of other programs.
type question struct{ answer chan<- foreign }

type foreign struct {
	chains []ForeignChain
	err    error
}

// Foreign looks for rules of other programs in a pod's namespace that can change what becomes of a
// packet before the agent's rules see it. It needs the dataplanes of Options.TakeOver, and finds
// nothing without them, in a pod that the agent does not deal with, or before its namespace is
// open. A worker answers while it waits: the error wraps the context's cause if it does not in
// time, or is the dataplane's.
func (a *Agent) Foreign(ctx context.Context, uid string) ([]ForeignChain, error) {
	a.mu.Lock()
	w := a.workers[uid]
	a.mu.Unlock()
	if w == nil {
		return nil, nil
	}
	answer := make(chan foreign, 1)
	select {
	case w.questions <- question{answer}:
	case <-w.retired:
		return nil, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("look for other programs' rules in pod %s: the agent is at work on the pod: ask again: %w", uid, context.Cause(ctx))
	}
	select {
	case found := <-answer:
		return found.chains, found.err
	case <-ctx.Done():
		return nil, fmt.Errorf("look for other programs' rules in pod %s: %w", uid, context.Cause(ctx))
	}
}

// answer answers a question.
func (w *worker) answer(ctx context.Context, q question) {
	var found foreign
	found.err = w.bounded(ctx, func() (err error) {
		found.chains, err = w.lookAtForeign(ctx)
		return err
	})
	q.answer <- found
}

func (w *worker) lookAtForeign(ctx context.Context) ([]ForeignChain, error) {
	if w.namespace == nil || w.plan == nil {
		return nil, nil
	}
	o := w.agent.options
	var states []interception.State
	for _, d := range o.TakeOver {
		state, err := o.observeOthers(ctx, d, w.namespace)
		if err != nil {
			return nil, fmt.Errorf("look for other programs' rules: %w", err)
		}
		states = append(states, state)
	}
	return precede(w.plan, join(states), o.Numbers), nil
}

// precede returns which of other programs' base chains come before the plan's rules, and can change
// what becomes of a packet.
func precede(plan *interception.Plan, chains []interception.ForeignChain, numbers ambient.Numbers) (before []ForeignChain) {
	last := lastPriorities(plan)
	inner := slices.DeleteFunc(slices.Clone(chains), func(c interception.ForeignChain) bool { return c.Hook != "" })
	for _, base := range chains {
		if ours, is := last[base.Hook]; base.Hook == "" || !is || base.Priority > ours {
			continue
		}
		world := append([]interception.ForeignChain{base}, inner...)
		found := ForeignChain{Table: base.Table, Name: base.Name, Hook: base.Hook, Priority: base.Priority, Rules: effects(plan, world)}
		if len(found.Rules) == 0 {
			continue
		}
		found.Marks = shorten(effects(plan, onlyMarks(world, numbers)))
		found.Rules = shorten(found.Rules)
		before = append(before, found)
	}
	return before
}

// mostRules is how many rules of a chain are told: a pod may have a hundred thousand.
const mostRules = 100

// shorten says of the rules beyond mostRules how many they are.
func shorten(rules []string) []string {
	if len(rules) <= mostRules {
		return rules
	}
	return append(rules[:mostRules:mostRules], fmt.Sprintf("and %d more", len(rules)-mostRules))
}

// lastPriorities returns the highest priority of the plan's base chains in each hook. All packets
// of a link pass the ingress hook first.
func lastPriorities(plan *interception.Plan) map[string]int32 {
	last := map[string]int32{}
	for table := range plan.Tables() {
		for _, entry := range table.Entries {
			hook, priority := entry.Hook.String(), lower.StandardBase(table.Kind, entry.Hook).Priority+int32(entry.Offset)
			if former, is := last[hook]; !is || priority > former {
				last[hook] = priority
			}
			if entry.Hook == interception.Prerouting {
				last["ingress"] = math.MaxInt32
			}
		}
	}
	return last
}

// effects returns the texts of what can change the outcome of packets.
func effects(plan *interception.Plan, chains []interception.ForeignChain) (texts []string) {
	for _, drift := range interception.Diff(plan, interception.State{Owner: plan.Owner, Foreign: chains}) {
		if drift.Kind == interception.DriftForeign {
			texts = append(texts, drift.Got)
		}
	}
	return texts
}

// onlyMarks returns the chains with the rules alone that set bits of the mesh's marks, and with
// their jumps.
func onlyMarks(chains []interception.ForeignChain, numbers ambient.Numbers) []interception.ForeignChain {
	mask := numbers.ProxyMark.Mask | numbers.ReplyMark.Mask
	all := slices.Clone(chains)
	for i := range all {
		all[i].Policy = nil
		all[i].Rules = slices.DeleteFunc(slices.Clone(all[i].Rules), func(r interception.Rule) bool {
			_, jumps := r.Action.(interception.Jump)
			return !jumps && marks(r.Action)&mask == 0
		})
	}
	return all
}

// marks returns the bits of a packet's or connection's mark that an action sets.
func marks(action interception.Action) interception.Mark {
	const all = ^interception.Mark(0) // which 0 stands for in a copy
	switch a := action.(type) {
	case interception.SetMark:
		return a.Mark.Mask
	case interception.SetConnMark:
		return a.Mark.Mask
	case interception.TProxyTo:
		return a.Mark.Mask
	case interception.SaveMark:
		return cmp.Or(a.Mask, all)
	case interception.RestoreMark:
		return cmp.Or(a.Mask, all)
	}
	return 0
}

// join returns the chains that several dataplanes have found. Each knows the owner's rules only
// where it would write them: if they are in the tables of iptables, another dataplane takes them
// for foreign ones there. Of a chain that two have found, the one counts that is decoded better.
func join(states []interception.State) (chains []interception.ForeignChain) {
	inTables := slices.ContainsFunc(states, func(s interception.State) bool { return s.NoPriorities })
	for _, state := range states {
		for _, chain := range state.Foreign {
			if inTables && !state.NoPriorities && isOfIPTables(chain.Table) {
				continue
			}
			at := slices.IndexFunc(chains, func(c interception.ForeignChain) bool { return c.Table == chain.Table && c.Name == chain.Name })
			switch {
			case at < 0:
				chains = append(chains, chain)
			case opaque(chain) < opaque(chains[at]):
				chains[at] = chain
			}
		}
	}
	return chains
}

// isOfIPTables reports whether a table of nf_tables is one that iptables-nft writes.
func isOfIPTables(table string) bool {
	family, name, _ := strings.Cut(table, " ")
	return (family == "ip" || family == "ip6") && slices.Contains([]string{"raw", "mangle", "nat", "filter", "security"}, name)
}

// opaque counts the rules that could not be decoded.
func opaque(chain interception.ForeignChain) (rules int) {
	for _, r := range chain.Rules {
		if _, is := r.Action.(interception.Opaque); is {
			rules++
		}
	}
	return rules
}
