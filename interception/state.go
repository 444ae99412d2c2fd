// SPDX-License-Identifier: Apache-2.0

package interception

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
