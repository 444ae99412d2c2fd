// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"fmt"
	"iter"
)

// Plan is the desired contents of a network namespace: an owner and an ordered list of objects. It
// is a value: [Build] or sidecar.Plan makes it, and nothing changes it afterwards. A caller can
// print it ([Plan.String]), name it ([Plan.Fingerprint]), trace it (package trace), render it
// (package render) and apply it with a [Dataplane]. A plan without objects is valid: its owner has
// nothing in the namespace.
type Plan struct {
	Owner Owner
	// Objects are the plan's parts, in the order in which a dataplane installs them. [Build] puts
	// links, addresses, sysctls, routes and policy rules before the tables whose rules rely on
	// them, and sets before the tables that refer to them.
	Objects []Object
}

// Object is a part of a plan: [Link], [Address], [Sysctl], [Route], [PolicyRule], [Set] or [Table].
// The interface is sealed, so that a switch over the kinds can be complete.
type Object interface {
	object()
}

func (Link) object()       {}
func (Address) object()    {}
func (Sysctl) object()     {}
func (Route) object()      {}
func (PolicyRule) object() {}
func (Set) object()        {}
func (Table) object()      {}

// Tables yields the plan's tables in order.
func (p *Plan) Tables() iter.Seq[Table] { return ObjectsOf[Table](p) }

// Sets yields the plan's sets in order.
func (p *Plan) Sets() iter.Seq[Set] { return ObjectsOf[Set](p) }

// ObjectsOf yields the plan's objects of one kind in order, for example ObjectsOf[Route](plan).
func ObjectsOf[O Object](p *Plan) iter.Seq[O] {
	return func(yield func(O) bool) {
		for _, object := range p.Objects {
			if o, ok := object.(O); ok && !yield(o) {
				return
			}
		}
	}
}

// Rules yields every rule with its position, in the order of the plan.
func (p *Plan) Rules() iter.Seq2[Position, Rule] {
	return func(yield func(Position, Rule) bool) {
		for table := range p.Tables() {
			for _, chain := range table.Chains {
				for i, rule := range chain.Rules {
					if !yield(Position{table.Kind, chain.Name, i}, rule) {
						return
					}
				}
			}
		}
	}
}

// Set returns the set of that name.
func (p *Plan) Set(name SetName) (Set, bool) {
	for set := range p.Sets() {
		if set.Name == name {
			return set, true
		}
	}
	return Set{}, false
}

// Chain returns the chain of that name.
func (t Table) Chain(name ChainName) (Chain, bool) {
	for _, chain := range t.Chains {
		if chain.Name == name {
			return chain, true
		}
	}
	return Chain{}, false
}

// Position is the place of a rule in a plan.
type Position struct {
	// Table and Chain name the chain that holds the rule.
	Table TableKind
	Chain ChainName
	// Index is the rule's index in the chain, from 0.
	Index int
}

// String returns table, chain and index, such as "nat/output[3]".
func (p Position) String() string { return fmt.Sprintf("%s/%s[%d]", p.Table, p.Chain, p.Index) }
