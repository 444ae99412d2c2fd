// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"fmt"
	"iter"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// PlanPart is a part of a plan that a dataplane may be unable to apply.
type PlanPart struct {
	// At is the location, as in errors: an object's id, a set's name, a table's kind, an entry's
	// id, or a rule's position and id.
	At string
	// Object is the object or, for an entry or a rule, the table.
	Object interception.Object
	// Entry or Rule is set when the part is an entry or a rule of a table.
	Entry *interception.Entry
	Rule  *interception.Rule
}

// Lacks refuses the objects or actions of type T, for [Options].Refuse: Lacks[interception.Route],
// Lacks[interception.TProxyTo].
func Lacks[T any](p PlanPart) string {
	var what any = p.Object
	if p.Rule != nil {
		what = p.Rule.Action
	} else if p.Entry != nil {
		return ""
	}
	if _, is := what.(T); !is {
		return ""
	}
	return fmt.Sprintf("this dataplane has no %T", what)
}

// parts yields the parts of a plan in order: a table before its entries and rules.
func parts(p *interception.Plan) iter.Seq[PlanPart] {
	return func(yield func(PlanPart) bool) {
		for _, object := range p.Objects {
			if !yield(PlanPart{At: name(object), Object: object}) {
				return
			}
			if table, ok := object.(interception.Table); ok && !tableParts(table, yield) {
				return
			}
		}
	}
}

func tableParts(table interception.Table, yield func(PlanPart) bool) bool {
	for _, entry := range table.Entries {
		if !yield(PlanPart{At: string(entry.ID), Object: table, Entry: &entry}) {
			return false
		}
	}
	for _, chain := range table.Chains {
		for i, rule := range chain.Rules {
			at := interception.Position{Table: table.Kind, Chain: chain.Name, Index: i}
			if !yield(PlanPart{At: fmt.Sprintf("%s %s", at, rule.ID), Object: table, Rule: &rule}) {
				return false
			}
		}
	}
	return true
}

// name returns the name of an object in errors.
func name(object interception.Object) string {
	switch o := object.(type) {
	case interception.Link:
		return string(o.ID)
	case interception.Address:
		return string(o.ID)
	case interception.Sysctl:
		return string(o.ID)
	case interception.Route:
		return string(o.ID)
	case interception.PolicyRule:
		return string(o.ID)
	case interception.Set:
		return "set " + string(o.Name)
	case interception.Table:
		return "table " + o.Kind.String()
	default:
		return fmt.Sprintf("%T", object)
	}
}

// clone copies objects, so that neither side sees the other's changes. Without provenance they are
// what a kernel would hold.
func clone(objects []interception.Object, provenance bool) []interception.Object {
	copies := slices.Clone(objects)
	for i, object := range copies {
		copies[i] = cloneObject(object, func(from []interception.Source) []interception.Source {
			if !provenance {
				return nil
			}
			return slices.Clone(from)
		})
	}
	return copies
}

func cloneObject(object interception.Object, from func([]interception.Source) []interception.Source) interception.Object {
	switch o := object.(type) {
	case interception.Link:
		o.From = from(o.From)
		o.Geneve, o.VXLAN, o.Veth = copied(o.Geneve), copied(o.VXLAN), copied(o.Veth)
		return o
	case interception.Address:
		o.From = from(o.From)
		return o
	case interception.Sysctl:
		o.From = from(o.From)
		return o
	case interception.Route:
		o.From = from(o.From)
		return o
	case interception.PolicyRule:
		o.From = from(o.From)
		return o
	case interception.Set:
		o.From = from(o.From)
		return o
	case interception.Table:
		o.Entries, o.Chains = slices.Clone(o.Entries), slices.Clone(o.Chains)
		for i, chain := range o.Chains {
			o.Chains[i].Rules = slices.Clone(chain.Rules)
			for j, rule := range chain.Rules {
				o.Chains[i].Rules[j].From = from(rule.From)
			}
		}
		return o
	default:
		return object
	}
}

func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	value := *p
	return &value
}
