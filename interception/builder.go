// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"cmp"
	"slices"
)

// Build returns the validated plan that fill builds. It is the way to write a plan by hand:
//
//	plan, err := Build("my-mesh", func(b *Builder) {
//		output := b.NAT("output")
//		output.Entry(Output, Match{L4: TCP()}, "what the pod connects to")
//		output.Do("output.proxy", Match{UID: Is(UIDs(1337))}, Return{}, "the proxy's own traffic")
//		output.Do("output.capture", Match{L4: TCP()}, RedirectTo{Port: 15001}, "everything else")
//	})
//
// The error joins a [*PlanError] for every reason, not only the first.
func Build(owner Owner, fill func(*Builder)) (*Plan, error) {
	b := &Builder{}
	fill(b)
	plan := &Plan{Owner: owner}
	for _, object := range b.objects {
		plan.Objects = append(plan.Objects, ownCopy(object))
	}
	for _, table := range b.tables {
		plan.Objects = append(plan.Objects, ownCopy(*table))
	}
	slices.SortStableFunc(plan.Objects, func(x, y Object) int { return cmp.Compare(applyOrder(x), applyOrder(y)) })
	if err := plan.Validate(); err != nil {
		return nil, err
	}
	return plan, nil
}

// ownCopy returns the object with slices and pointers of its own, so that neither a [ChainRef] nor
// what the caller gave changes a plan that has been validated.
func ownCopy(object Object) Object {
	switch o := object.(type) {
	case Link:
		o.Geneve, o.VXLAN, o.Veth, o.From = pointee(o.Geneve), pointee(o.VXLAN), pointee(o.Veth), slices.Clone(o.From)
		return o
	case Address:
		o.From = slices.Clone(o.From)
		return o
	case Sysctl:
		o.From = slices.Clone(o.From)
		return o
	case Route:
		o.From = slices.Clone(o.From)
		return o
	case PolicyRule:
		o.From = slices.Clone(o.From)
		return o
	case Set:
		o.From = slices.Clone(o.From)
		return o
	case Table:
		o.Entries, o.Chains = slices.Clone(o.Entries), slices.Clone(o.Chains)
		for i, chain := range o.Chains {
			o.Chains[i].Rules = slices.Clone(chain.Rules)
			for j, rule := range chain.Rules {
				o.Chains[i].Rules[j].From = slices.Clone(rule.From)
			}
		}
		return o
	default:
		return object
	}
}

// pointee returns a pointer to a copy; nil for nil.
func pointee[T any](p *T) *T {
	if p == nil {
		return nil
	}
	value := *p
	return &value
}

// applyOrder returns the place of a kind of object in a plan: dependencies come first.
func applyOrder(o Object) int {
	switch o.(type) {
	case Link:
		return 0
	case Address:
		return 1
	case Sysctl:
		return 2
	case Route:
		return 3
	case PolicyRule:
		return 4
	case Set:
		return 5
	default:
		return 6
	}
}

// Builder collects the objects of a plan for [Build]. The zero value is empty and ready.
type Builder struct {
	objects []Object
	tables  []*Table
}

// Link adds an interface.
func (b *Builder) Link(l Link) { b.objects = append(b.objects, l) }

// Address adds an address.
func (b *Builder) Address(a Address) { b.objects = append(b.objects, a) }

// Sysctl adds a kernel parameter.
func (b *Builder) Sysctl(s Sysctl) { b.objects = append(b.objects, s) }

// Route adds a route.
func (b *Builder) Route(r Route) { b.objects = append(b.objects, r) }

// PolicyRule adds a policy rule.
func (b *Builder) PolicyRule(r PolicyRule) { b.objects = append(b.objects, r) }

// Set adds a fixed set of prefixes of one family and returns a reference for a [Match].
func (b *Builder) Set(name SetName, members PrefixSet, why string, from ...Source) SetRef {
	set := Set{Name: name, Family: members.Family(), Members: members, Why: why, From: from}
	b.objects = append(b.objects, set)
	return SetRef{Name: name, Family: set.Family}
}

// LiveSet adds an empty live set of prefixes of one family and returns a reference to it.
func (b *Builder) LiveSet(name SetName, family Family, why string) SetRef {
	b.objects = append(b.objects, Set{Name: name, Family: family, Live: true, Why: why})
	return SetRef{Name: name, Family: family}
}

// LiveAddresses adds an empty live set of single addresses of one family and returns a reference to
// it. [SetEdit] changes its members.
func (b *Builder) LiveAddresses(name SetName, family Family, why string) SetRef {
	b.objects = append(b.objects, Set{Name: name, Family: family, Live: true, Addresses: true, Why: why})
	return SetRef{Name: name, Family: family}
}

// NAT adds a chain to the nat table.
func (b *Builder) NAT(name ChainName) *ChainRef[NATAction] { return newChain[NATAction](b, NAT, name) }

// Raw adds a chain to the raw table.
func (b *Builder) Raw(name ChainName) *ChainRef[RawAction] {
	return newChain[RawAction](b, Raw, name)
}

// Mangle adds a chain to the mangle table.
func (b *Builder) Mangle(name ChainName) *ChainRef[MangleAction] {
	return newChain[MangleAction](b, Mangle, name)
}

// Filter adds a chain to the filter table.
func (b *Builder) Filter(name ChainName) *ChainRef[FilterAction] {
	return newChain[FilterAction](b, Filter, name)
}

// table returns the builder's table of a kind. It adds the table if it is missing.
func (b *Builder) table(kind TableKind) *Table {
	i := slices.IndexFunc(b.tables, func(t *Table) bool { return t.Kind == kind })
	if i < 0 {
		i = len(b.tables)
		b.tables = append(b.tables, &Table{Kind: kind})
	}
	return b.tables[i]
}

// ChainRef is a chain under construction. A is its table's type of action, also for jumps. After
// [Build] has returned it changes no plan.
type ChainRef[A Action] struct {
	table *Table
	index int
}

func newChain[A Action](b *Builder, kind TableKind, name ChainName) *ChainRef[A] {
	table := b.table(kind)
	table.Chains = append(table.Chains, Chain{Name: name})
	return &ChainRef[A]{table: table, index: len(table.Chains) - 1}
}

// Entry makes a hook jump into the chain, for the packets that match.
func (c *ChainRef[A]) Entry(hook Hook, match Match, why string) { c.EntryAt(hook, 0, match, why) }

// EntryAt is Entry with an offset, which moves the jump before the rules of other programs or after
// them ([Entry.Offset]).
func (c *ChainRef[A]) EntryAt(hook Hook, offset int32, match Match, why string) {
	name := c.chain().Name
	id := RuleID(c.table.Kind.String() + "." + hook.String() + "." + string(name))
	c.table.Entries = append(c.table.Entries, Entry{ID: id, Hook: hook, Offset: offset, Match: match, Chain: name, Why: why})
}

// Do appends a rule to the chain.
func (c *ChainRef[A]) Do(id RuleID, match Match, action A, why string, from ...Source) {
	c.chain().Rules = append(c.chain().Rules, Rule{ID: id, Match: match, Action: action, Why: why, From: from})
}

// Call appends a rule that jumps to another chain of the same table. A jump to another kind of
// table does not compile; [Build] refuses a jump into another builder's plan.
func (c *ChainRef[A]) Call(id RuleID, match Match, to *ChainRef[A], why string, from ...Source) {
	rule := Rule{ID: id, Match: match, Action: Jump{Chain: to.chain().Name}, Why: why, From: from}
	if to.table != c.table {
		rule.Action = Jump{} // every chain has a name, so that Build refuses this jump
	}
	c.chain().Rules = append(c.chain().Rules, rule)
}

func (c *ChainRef[A]) chain() *Chain { return &c.table.Chains[c.index] }
