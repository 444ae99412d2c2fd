// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"errors"
	"fmt"
	"slices"
)

// maxJumps is the depth of chains below a hook: the kernel's stack has 16 entries
// (NFT_JUMP_STACK_SIZE), one of them for the base chain.
const maxJumps = 15

// Validate returns every error in the plan, joined, each a [*PlanError], or nil. [Build] has called
// it already; it is for plans made in other ways.
func (p *Plan) Validate() error {
	if p == nil {
		return &PlanError{At: "plan", Err: errors.New("it is nil: a plan without objects means no rules")}
	}
	v := validator{plan: p, ids: map[RuleID]bool{}, links: map[Interface]bool{}, sets: map[SetName]Family{}}
	v.check(place{kind: "owner"}, p.Owner.Validate())
	for _, object := range p.Objects {
		v.object(object)
	}
	kinds := map[TableKind]bool{}
	for table := range p.Tables() {
		if table.Kind.Hooks() == nil || kinds[table.Kind] {
			v.check(place{kind: "table", name: table.Kind.String()}, errors.New("a plan has at most one table of each kind, raw, mangle, nat or filter"))
			continue
		}
		kinds[table.Kind] = true
		v.table(table)
	}
	return errors.Join(v.errs...)
}

type validator struct {
	plan  *Plan
	ids   map[RuleID]bool
	links map[Interface]bool
	sets  map[SetName]Family
	errs  []error
}

// place is a place in a plan. Its text is made only for an error.
type place struct {
	kind string   // "set", "entry", "table", ...; "" for a rule
	name string   // of the object
	rule Position // of a rule
}

func (p place) String() string {
	switch {
	case p.kind == "":
		return fmt.Sprintf("%s %q", p.rule, p.name)
	case p.name == "":
		return p.kind
	default:
		return fmt.Sprintf("%s %q", p.kind, p.name)
	}
}

// check records err, unless it is nil, with its place.
func (v *validator) check(at place, err error) {
	if err != nil {
		v.errs = append(v.errs, &PlanError{At: at.String(), Err: err})
	}
}

func (v *validator) table(t Table) {
	for i, chain := range t.Chains {
		at := place{kind: t.Kind.String() + " chain", name: string(chain.Name)}
		v.check(at, chain.Name.Validate())
		if slices.ContainsFunc(t.Chains[:i], func(c Chain) bool { return c.Name == chain.Name }) {
			v.check(at, errors.New("another chain of the table has the same name"))
		}
	}
	for _, entry := range t.Entries {
		v.entry(t, entry)
	}
	reach, err := reachedHooks(t)
	if err != nil {
		v.check(place{kind: "table", name: t.Kind.String()}, err)
		return
	}
	for _, chain := range t.Chains {
		for i, rule := range chain.Rules {
			v.rule(t, Position{t.Kind, chain.Name, i}, rule, reach[chain.Name])
		}
	}
}

func (v *validator) entry(t Table, e Entry) {
	at := place{kind: "entry", name: string(e.ID)}
	v.id(at, e.ID)
	v.check(at, validateWhy(e.Why))
	if !slices.Contains(t.Kind.Hooks(), e.Hook) {
		v.check(at, fmt.Errorf("table %s has no hook %s: use one of %v", t.Kind, e.Hook, t.Kind.Hooks()))
		return
	}
	if _, ok := t.Chain(e.Chain); !ok {
		v.check(at, fmt.Errorf("chain %q is not in the table", string(e.Chain)))
	}
	v.match(at, t.Kind, e.Match, []Hook{e.Hook})
}

func (v *validator) rule(t Table, pos Position, r Rule, hooks []Hook) {
	at := place{name: string(r.ID), rule: pos}
	v.id(at, r.ID)
	v.check(at, validateWhy(r.Why))
	v.match(at, t.Kind, r.Match, hooks)
	v.check(at, validateAction(t, r, hooks))
}

func (v *validator) id(at place, id RuleID) {
	v.check(at, id.Validate())
	if v.ids[id] {
		v.check(at, errors.New("another rule or entry has the same id"))
	}
	v.ids[id] = true
}
