// SPDX-License-Identifier: Apache-2.0

package lower

import (
	"cmp"
	"math"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// The priorities of the kernel's own functions in a hook (linux/netfilter_ipv4.h, NF_IP_PRI_*).
const (
	TrackingPriority       = -200
	DestinationNATPriority = -100
	SourceNATPriority      = 100
)

// StageKind is what the kernel does in a [Stage].
type StageKind int

// The kinds of stages.
const (
	// Asking: the kernel evaluates one base chain.
	Asking StageKind = iota
	// Tracking: connection tracking looks up the packet's flow.
	Tracking
	// Translating: the kernel evaluates the base chains of type nat in order, until one translates,
	// and gives the packet the addresses that its flow is bound to.
	Translating
)

// Stage is one step of the kernel in a hook.
type Stage struct {
	Kind StageKind
	// Bases are the base chains to evaluate: one when Asking, any number when Translating.
	Bases []PlacedBase
}

// PlacedBase is a base chain of one of several plans: a plan's table at one priority of a hook.
type PlacedBase struct {
	// Plan is the plan that the chain belongs to, and Table the plan's table.
	Plan  *interception.Plan
	Table interception.Table
	// Number is the table's number, counted from 0 over the tables of all plans.
	Number int
	// Priority can hold the sum of any [interception.Entry.Offset] and the table's own.
	Priority int64
	// Entries are the indices of the table's entries that apply, in order.
	Entries []int
}

// Schedule returns what the kernel does, in order, with a packet in a hook with several plans. Of
// base chains of one plan at the same priority, the kernel evaluates the one registered last first
// (net/netfilter/core.c, nf_hook_entries_grow). Forward has no translation.
func Schedule(hook interception.Hook, plans []*interception.Plan) []Stage {
	chains, nat := placed(hook, plans)
	var stages []Stage
	askUpTo := func(priority int64) {
		for len(chains) > 0 && chains[0].Priority <= priority {
			stages = append(stages, Stage{Asking, chains[:1]})
			chains = chains[1:]
		}
	}
	translation := int64(SourceNATPriority)
	if hook == interception.Prerouting || hook == interception.Output {
		askUpTo(TrackingPriority)
		stages = append(stages, Stage{Kind: Tracking})
		translation = DestinationNATPriority
	}
	askUpTo(translation)
	if hook != interception.Forward {
		stages = append(stages, Stage{Translating, nat})
	}
	askUpTo(math.MaxInt64)
	return stages
}

// placed returns the base chains of all plans in a hook by priority, those of type nat separately.
func placed(hook interception.Hook, plans []*interception.Plan) (chains, nat []PlacedBase) {
	number := 0
	for _, plan := range plans {
		var own []PlacedBase
		for table := range plan.Tables() {
			own = append(own, basesOf(hook, plan, table, number)...)
			number++
		}
		for _, base := range slices.Backward(own) {
			if base.Table.Kind == interception.NAT {
				nat = append(nat, base)
			} else {
				chains = append(chains, base)
			}
		}
	}
	byPriority := func(a, b PlacedBase) int { return cmp.Compare(a.Priority, b.Priority) }
	slices.SortStableFunc(chains, byPriority)
	slices.SortStableFunc(nat, byPriority)
	return chains, nat
}

// basesOf returns a table's base chains in a hook, in the order of their first entries.
func basesOf(hook interception.Hook, plan *interception.Plan, table interception.Table, number int) []PlacedBase {
	var all []PlacedBase
	for i, e := range table.Entries {
		if e.Hook != hook {
			continue
		}
		priority := int64(StandardBase(table.Kind, hook).Priority) + int64(e.Offset)
		at := slices.IndexFunc(all, func(b PlacedBase) bool { return b.Priority == priority })
		if at < 0 {
			at = len(all)
			all = append(all, PlacedBase{Plan: plan, Table: table, Number: number, Priority: priority})
		}
		all[at].Entries = append(all[at].Entries, i)
	}
	return all
}
