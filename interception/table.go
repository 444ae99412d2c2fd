// SPDX-License-Identifier: Apache-2.0

package interception

import "fmt"

// TableKind is one of netfilter's classic tables: what its chains may do, and when in a hook they are asked.
type TableKind uint8

// The tables, in the order in which a hook asks them, but for Input, where NAT comes behind Filter.
const (
	// Raw comes first, before connection tracking.
	Raw TableKind = iota + 1
	// Mangle comes behind connection tracking; a change in Output makes the kernel route the packet again.
	Mangle
	// NAT is asked for the first packet of a connection only, and its answer holds for the rest of it.
	NAT
	// Filter comes last.
	Filter
)

// TableKinds lists the kinds in the order of their numbers.
func TableKinds() []TableKind { return []TableKind{Raw, Mangle, NAT, Filter} }

// String is "raw", "mangle", "nat" or "filter".
func (k TableKind) String() string {
	return nameOf(k, "no table", "raw", "mangle", "nat", "filter")
}

// nameOf is the name of a value among those that count from 0, the first of which is that of values without a name.
func nameOf[T ~uint8](value T, names ...string) string {
	if int(value) >= len(names) {
		return names[0]
	}
	return names[value]
}

// Hooks lists the hooks that the table has, as in iptables(8), in the order a packet may meet them; nil for an invalid kind.
func (k TableKind) Hooks() []Hook {
	switch k {
	case Raw:
		return []Hook{Prerouting, Output}
	case Mangle:
		return []Hook{Prerouting, Input, Forward, Output, Postrouting}
	case NAT:
		return []Hook{Prerouting, Input, Output, Postrouting}
	case Filter:
		return []Hook{Input, Forward, Output}
	default:
		return nil
	}
}

// Hook is a point in a packet's way through a namespace (linux/netfilter.h, NF_INET_*).
type Hook uint8

// The hooks.
const (
	// Prerouting sees what came by an interface, before it is routed.
	Prerouting Hook = iota + 1
	// Input sees what is routed to a local socket.
	Input
	// Forward sees what is routed through.
	Forward
	// Output sees what local sockets made, routed once.
	Output
	// Postrouting sees what is about to leave by an interface.
	Postrouting
)

// Hooks lists the hooks in the order of their numbers.
func Hooks() []Hook { return []Hook{Prerouting, Input, Forward, Output, Postrouting} }

// String is the hook's name in lower case, such as "prerouting".
func (h Hook) String() string {
	return nameOf(h, "no hook", "prerouting", "input", "forward", "output", "postrouting")
}

// Table is an object of a plan: the owned chains of one kind, and the hooks that jump into them.
type Table struct {
	// Kind is the table. A plan has at most one Table of each kind.
	Kind TableKind
	// Entries are the jumps from hooks into chains, in order.
	Entries []Entry
	// Chains are the owned chains.
	Chains []Chain
}

// Entry makes a hook jump into an owned chain. It is the only thing that a plan puts into a hook: rules stand in owned chains,
// where they can be replaced and removed without touching anybody else's.
type Entry struct {
	// ID names the entry: table, hook and chain, such as "nat.output.output".
	ID RuleID
	// Hook is where the jump stands.
	Hook Hook
	// Offset moves the jump before others in the hook (negative) or behind them (positive): it is added to the priority that the
	// table has there. iptables knows no priorities, and puts what is negative first and everything else last.
	Offset int32
	// Match narrows the jump.
	Match Match
	// Chain is where it leads to.
	Chain ChainName
	// Why is the constant reason.
	Why string
}

// Chain is an owned chain: rules that are asked in order until one decides.
type Chain struct {
	// Name is unique within the table.
	Name ChainName
	// Rules are asked in order; behind the last one the chain returns.
	Rules []Rule
}

// Rule is one line of a chain.
type Rule struct {
	// ID is unique in the plan and stable across versions: it names the rule in traces, errors and the kernel's comments.
	ID RuleID
	// Match says which packets the rule applies to.
	Match Match
	// Action says what happens to them.
	Action Action
	// Why is the constant reason for the rule. It holds no text from a pod.
	Why string
	// From is the rule's provenance: what made it, such as an annotation with its value. It never reaches the kernel.
	From []Source
}

// Set is an object of a plan: a named set of prefixes of one family that rules refer to, in place of a rule for each member. It is
// fixed or live: the members of a fixed set belong to the plan and its fingerprint; those of a live one are edited one by one
// while the plan stands, and survive its being applied again.
type Set struct {
	// Name is unique in the plan.
	Name SetName
	// Family is the family of all members.
	Family Family
	// Live makes the set live. Members is then empty.
	Live bool
	// Members are the contents of a fixed set.
	Members PrefixSet
	// Why is the constant reason for the set.
	Why string
	// From is the provenance of the members.
	From []Source
}

// SetRef refers to a [Set] of the same plan. [Builder.Set] makes it.
type SetRef struct {
	// Name is the set's name.
	Name SetName
	// Family is the set's family; it becomes the family of a rule that refers to it.
	Family Family
}

// IsEmpty reports whether the reference is the zero value, which refers to nothing.
func (r SetRef) IsEmpty() bool { return r.Name == "" }

// String is "@" and the set's name, as nft writes it.
func (r SetRef) String() string { return "@" + string(r.Name) }

func (s Set) text() string {
	if s.Live {
		return fmt.Sprintf("set %s %s live", s.Name, s.Family)
	}
	return fmt.Sprintf("set %s %s: %s", s.Name, s.Family, s.Members)
}
