// SPDX-License-Identifier: Apache-2.0

package interception

import "fmt"

// TableKind is one of netfilter's classic tables. It decides what the table's chains may do and
// when in a hook they run.
type TableKind uint8

// The tables, in the order in which they run in a hook, except that NAT runs last in Input.
const (
	// Raw runs first, before connection tracking.
	Raw TableKind = iota + 1
	// Mangle runs after connection tracking. A change in Output makes the kernel route the packet
	// again.
	Mangle
	// NAT runs for the first packet of a connection only; its verdict holds for the rest.
	NAT
	// Filter runs last.
	Filter
)

// TableKinds returns the kinds in the order of their numbers.
func TableKinds() []TableKind { return []TableKind{Raw, Mangle, NAT, Filter} }

// String returns "raw", "mangle", "nat" or "filter".
func (k TableKind) String() string {
	return nameOf(k, "no table", "raw", "mangle", "nat", "filter")
}

// nameOf returns the name of a value that counts from 0. Values without a name get the first name.
func nameOf[T ~uint8](value T, names ...string) string {
	if int(value) >= len(names) {
		return names[0]
	}
	return names[value]
}

// Hooks returns the hooks that the table has (iptables(8)), in the order in which a packet may meet
// them. It returns nil for an invalid kind.
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

// Hook is a point in a packet's path through a namespace (linux/netfilter.h, NF_INET_*).
type Hook uint8

// The hooks.
const (
	// Prerouting sees packets that arrived on an interface, before they are routed.
	Prerouting Hook = iota + 1
	// Input sees packets that are routed to a local socket.
	Input
	// Forward sees packets that the namespace forwards.
	Forward
	// Output sees packets from local sockets, after their first routing.
	Output
	// Postrouting sees packets that are about to leave through an interface.
	Postrouting
)

// Hooks returns the hooks in the order of their numbers.
func Hooks() []Hook { return []Hook{Prerouting, Input, Forward, Output, Postrouting} }

// String returns the hook's name in lower case, such as "prerouting".
func (h Hook) String() string {
	return nameOf(h, "no hook", "prerouting", "input", "forward", "output", "postrouting")
}

// Table is an object of a plan: the owned chains of one kind and the hooks that jump into them.
type Table struct {
	// Kind is the table. A plan has at most one Table of each kind.
	Kind TableKind
	// Entries are the jumps from hooks into chains, in order.
	Entries []Entry
	// Chains are the owned chains.
	Chains []Chain
}

// Entry makes a hook jump into an owned chain. A plan adds nothing else to a hook: its rules are in
// owned chains, where a dataplane can replace and remove them without touching other programs'
// rules.
type Entry struct {
	// ID is table, hook and chain, such as "nat.output.output".
	ID RuleID
	// Hook is the hook that holds the jump.
	Hook Hook
	// Offset moves the jump before others in the hook (negative) or after them (positive): it is
	// added to the table's priority in that hook. iptables has no priorities; its backend keeps the
	// jumps of a table's hook together, in the order of their offsets: before those of other
	// programs if one offset is negative, and else after them.
	Offset int32
	// Match narrows the jump.
	Match Match
	// Chain is the target of the jump.
	Chain ChainName
	// Why is the constant reason for the entry.
	Why string
}

// Chain is an owned chain: rules that the kernel evaluates in order until one decides.
type Chain struct {
	// Name is unique within the table.
	Name ChainName
	// Rules are evaluated in order; after the last one the chain returns.
	Rules []Rule
}

// Rule is one line of a chain.
type Rule struct {
	// ID is unique in the plan and stable across versions. It names the rule in traces, errors and
	// the kernel's comments.
	ID RuleID
	// Match selects the packets that the rule applies to.
	Match Match
	// Action is what happens to those packets.
	Action Action
	// Why is the constant reason for the rule. It contains no text from a pod.
	Why string
	// From is the rule's provenance, for example annotations. It never reaches the kernel.
	From []Source
}

// Set is an object of a plan: a named set of prefixes of one family. A rule refers to the set
// instead of repeating itself for each member. The members of a fixed set belong to the plan and
// its fingerprint. The members of a live set are edited one by one while the plan is installed, and
// survive another Apply.
type Set struct {
	// Name is unique in the plan.
	Name SetName
	// Family is the family of all members.
	Family Family
	// Live makes the set live. Members is then empty.
	Live bool
	// Addresses makes a live set one of single addresses, which [SetEdit] changes. Without it, a live
	// set is of prefixes.
	Addresses bool
	// Members are the contents of a fixed set.
	Members PrefixSet
	// Why is the constant reason for the set.
	Why string
	// From is the provenance of the members.
	From []Source
}

// SetRef refers to a [Set] of the same plan. [Builder.Set], [Builder.LiveSet]
// and [Builder.LiveAddresses] return one.
type SetRef struct {
	// Name is the set's name.
	Name SetName
	// Family is the set's family. A rule that refers to the set applies to that family.
	Family Family
}

// IsEmpty reports whether the reference is the zero value, which refers to nothing.
func (r SetRef) IsEmpty() bool { return r.Name == "" }

// String returns "@" and the set's name, as in nft's syntax.
func (r SetRef) String() string { return "@" + string(r.Name) }

// liveText describes the type of a live set.
func (s Set) liveText() string {
	if s.Addresses {
		return "live addresses"
	}
	return "live"
}

func (s Set) text() string {
	if s.Live {
		return fmt.Sprintf("set %s %s %s", s.Name, s.Family, s.liveText())
	}
	return fmt.Sprintf("set %s %s: %s", s.Name, s.Family, s.Members)
}
