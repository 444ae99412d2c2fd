// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// State is what a network namespace holds for an owner, in the model of plans, for [Diff] to
// compare with one. [Dataplane.Observe] reads it from the kernel. The zero value is a namespace
// that holds nothing.
type State struct {
	Owner Owner
	// Objects are the owner's objects in [Build]'s order, and within a kind in the kernel's order.
	// Ids and reasons come from the kernel's comments, are empty where the kernel stores none (on
	// routes, say), and prove nothing. Provenance is lost. A rule that cannot be decoded has the
	// action [Opaque] and as much of its match as could be decoded; it applies to no packet outside
	// that match. Live sets include their members.
	Objects []Object
	// Owners are the owners of the members of live sets of single addresses, as [SetEdit] gave them;
	// "" for a member that another program has added. A set without members is absent.
	Owners map[SetName]map[netip.Addr]string
	// Deviations are what the owner, or the owner's table, has and a plan cannot express.
	Deviations []Deviation
	// Dormant reports whether the owner's table is switched off: its chains see no packets.
	// Deviations has an element for it as well.
	Dormant bool
	// NoPriorities reports that the hooks order rules by position alone, as those of iptables do: the
	// entries are in the order of the kernel, and their Offset is 0.
	NoPriorities bool
	// Foreign are other programs' chains, in the kernel's order, if the dataplane reads them.
	Foreign []ForeignChain
}

// Deviation is one thing that an owner has in the kernel, or lacks, and that the objects of a plan
// cannot express: another policy of a base chain, a route for one type of service, a table that is
// switched off. A route of another program in a routing table of the owner's own is one, too.
type Deviation struct {
	// At is the place, as in [Drift].
	At string
	// Object is the object without the deviation, or nil. It is not among the state's Objects.
	Object Object
	// Want is the state after every Apply; empty for something that Apply never makes.
	Want string
	// Got is the observed state; empty for nothing. With an object, it is the excess over it.
	Got string
	// Foreign reports whether it is another program's, which no Apply removes.
	Foreign bool
}

// ForeignChain is another program's chain in nf_tables: a base chain, or a chain that one jumps to.
type ForeignChain struct {
	// Table is the table with its family, as nft prints it: "ip nat".
	Table string
	// Name is the chain's name, unique in the table.
	Name string
	// Hook is the hook of a base chain as nft prints it: that of a [Hook], "ingress" or "egress";
	// empty for a chain that others jump to.
	Hook string
	// Type is the type of a base chain as nft prints it, "filter", "nat" or "route"; else empty.
	Type string
	// Priority orders the base chains of a hook, lowest first.
	Priority int32
	// Shared reports whether rules of the owner, which are not in Rules, lead from this chain to
	// the owner's chains: an accept or return in this chain, or in a chain that it jumps to, keeps
	// packets from the rules after it. In iptables all owners share the base chains.
	Shared bool
	// Policy is a base chain's verdict at its end, [Accept] or [Drop]; nil for other chains.
	Policy Action
	// Rules are the chain's rules as in [State.Objects], without those that do nothing. A Jump
	// leads to a chain of the same table. A fixed set appears as its members in the rule; a rule
	// that refers to a set that can change is opaque, and may name the set ([Opaque].To).
	Rules []Rule
}

// Opaque is the action of an observed rule that could not be decoded. No plan contains it.
type Opaque struct {
	// Text is what the kernel holds, as far as it could be read.
	Text string
	// To and Then are set where only the members of a set are unknown: another program's rule does
	// Then to the packets of its match whose destination is in that program's set To. The program
	// may change the members at any time.
	To   string
	Then Action
}

// String returns "opaque: " and the text.
func (a Opaque) String() string { return "opaque: " + a.Text }

func (Opaque) action() {}

// foundWhy is the reason for objects that were observed without one.
const foundWhy = "found in the kernel"

// Plan returns the objects as a plan, for callers that trace, render or compare them. It invents
// unique ids and reasons where the kernel's comments have none or not a valid one, and chain names
// where a plan could not have the observed one. The plan contains no deviations and no other
// program's chains. With a rule that could not be decoded it is not valid: [Plan.Validate] names
// the rule.
func (s State) Plan() *Plan {
	plan := &Plan{Owner: s.Owner, Objects: slices.Clone(s.Objects)}
	n := naming{seen: map[RuleID]bool{}}
	for i, object := range plan.Objects {
		plan.Objects[i] = n.object(object)
	}
	return plan
}

// naming assigns valid ids and reasons.
type naming struct {
	seen map[RuleID]bool
}

func (n *naming) name(id RuleID, why string) (RuleID, string) {
	for i := len(n.seen); id.Validate() != nil || n.seen[id]; i++ {
		id = RuleID(fmt.Sprintf("observed.%d", i))
	}
	n.seen[id] = true
	return id, cmp.Or(why, foundWhy)
}

func (n *naming) object(object Object) Object {
	switch o := object.(type) {
	case Link:
		o.ID, o.Why = n.name(o.ID, o.Why)
		return o
	case Address:
		o.ID, o.Why = n.name(o.ID, o.Why)
		return o
	case Sysctl:
		o.ID, o.Why = n.name(o.ID, o.Why)
		return o
	case Route:
		o.ID, o.Why = n.name(o.ID, o.Why)
		return o
	case PolicyRule:
		o.ID, o.Why = n.name(o.ID, o.Why)
		return o
	case Set:
		o.Why = cmp.Or(o.Why, foundWhy)
		return o
	case Table:
		return n.table(o)
	default:
		return object
	}
}

func (n *naming) table(t Table) Table {
	t.Entries, t.Chains = slices.Clone(t.Entries), slices.Clone(t.Chains)
	chain := chainNaming(t)
	for i, e := range t.Entries {
		t.Entries[i].Chain = chain(e.Chain)
		t.Entries[i].ID, t.Entries[i].Why = n.name(e.ID, e.Why)
	}
	for i, c := range t.Chains {
		t.Chains[i].Name = chain(c.Name)
		t.Chains[i].Rules = slices.Clone(c.Rules)
		for j, r := range c.Rules {
			t.Chains[i].Rules[j].ID, t.Chains[i].Rules[j].Why = n.name(r.ID, r.Why)
			if jump, ok := r.Action.(Jump); ok {
				t.Chains[i].Rules[j].Action = Jump{chain(jump.Chain)}
			}
		}
	}
	return t
}

// chainNaming returns a function that maps the table's chain names to valid ones.
func chainNaming(t Table) func(ChainName) ChainName {
	names := map[ChainName]ChainName{}
	for _, c := range t.Chains {
		if c.Name.Validate() == nil {
			names[c.Name] = c.Name
		}
	}
	return func(name ChainName) ChainName {
		for i := len(names); names[name] == ""; i++ {
			if other := ChainName(fmt.Sprintf("observed-%d", i)); names[other] == "" {
				names[name], names[other] = other, other
			}
		}
		return names[name]
	}
}
