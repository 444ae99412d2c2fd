// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"fmt"
	"slices"
)

// State is what a network namespace holds for an owner, in the model of plans, for [Diff] to compare with one. [Dataplane.Observe]
// reads it from the kernel. The zero value is a namespace that holds nothing.
type State struct {
	// Owner is whose objects they are.
	Owner Owner
	// Objects are the owner's, in the order that [Build] gives a plan, and within a kind in the order of the kernel. Ids and reasons are
	// those of the kernel's comments, empty where it keeps none (on routes, say), and no proof of anything; provenance is lost. A rule
	// that cannot be decoded has the action [Opaque], and its match says as much as could be: it applies to no packet beyond that.
	// Live sets come with their members.
	Objects []Object
	// Deviations are what is the owner's, or of the owner's table, and no plan can say.
	Deviations []Deviation
	// Dormant says that the owner's table is switched off: no packet is given to its chains. Deviations say so too.
	Dormant bool
	// Foreign are the chains of others, in the order of the kernel, when the dataplane was told to read them.
	Foreign []ForeignChain
}

// Deviation is one thing that an owner has in the kernel, or has no more, and that the objects of a plan have no word for: another
// policy of a chain in a hook, a route with a metric, a table that is switched off.
type Deviation struct {
	// At is where, as in [Drift].
	At string
	// Object is the object that it would be without; nil when there is none. It is not among the objects of the state then.
	Object Object
	// Want is what is there behind every Apply; empty for what is never there.
	Want string
	// Got is what is there; empty for nothing. With an object it is what the object has beyond itself.
	Got string
}

// ForeignChain is a chain of somebody else in nf_tables: one that hangs on a hook (a base chain), or one that is jumped to.
type ForeignChain struct {
	// Table is the table as nft names it, with its family: "ip nat".
	Table string
	// Name is the chain's name, unique in the table.
	Name string
	// Hook is the hook of a base chain as nft names it: that of a [Hook], "ingress" or "egress"; empty for a chain that is jumped to.
	Hook string
	// Type is the type of a base chain as nft names it, "filter", "nat" or "route"; empty for others.
	Type string
	// Priority orders the base chains of a hook, lowest first.
	Priority int32
	// Shared says that rules of the owner's, which are not among Rules, lead from this chain to the owner's: to accept or to return in it,
	// or in a chain that it jumps to, keeps packets from those behind. In iptables all owners share the chains of the hooks.
	Shared bool
	// Policy is what a base chain does with a packet that reaches its end: [Accept] or [Drop]; nil for others.
	Policy Action
	// Rules are the chain's rules as in [State.Objects]. Those that do nothing are left out. A Jump leads to a chain of the same table; a
	// fixed set of the table stands in a rule as its members, and a rule that asks one that can change is opaque.
	Rules []Rule
}

// Opaque stands in an observed rule for what could not be decoded. No plan has it.
type Opaque struct {
	// Text is what the kernel holds, as far as it is known.
	Text string
}

// String is "opaque: " and the text.
func (a Opaque) String() string { return "opaque: " + a.Text }

func (Opaque) action() {}

// foundWhy is the reason of what was observed without one.
const foundWhy = "found in the kernel"

// Plan takes what was observed for a plan, for those who trace, render or compare it: ids and reasons that the kernel's comments don't
// tell, or that can't be, are made up, so that they are unique, and so are names of chains that no plan can have. Deviations and the
// chains of others are not in it. With a rule that
// could not be decoded it is no valid plan: [Plan.Validate] names the rule.
func (s State) Plan() *Plan {
	plan := &Plan{Owner: s.Owner, Objects: slices.Clone(s.Objects)}
	n := naming{seen: map[RuleID]bool{}}
	for i, object := range plan.Objects {
		plan.Objects[i] = n.object(object)
	}
	return plan
}

// naming gives valid ids and reasons.
type naming struct {
	seen map[RuleID]bool
}

func (n *naming) name(id RuleID, why string) (RuleID, string) {
	for i := len(n.seen); id.Validate() != nil || n.seen[id]; i++ {
		id = RuleID(fmt.Sprintf("observed.%d", i))
	}
	n.seen[id] = true
	if why == "" {
		why = foundWhy
	}
	return id, why
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
		if o.Why == "" {
			o.Why = foundWhy
		}
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

// chainNaming gives the chains of a table valid names.
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
