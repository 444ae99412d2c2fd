// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"errors"
	"fmt"
	"slices"
)

// maxJumps is how deep the kernel lets chains call each other (NFT_JUMP_STACK_SIZE), the base chain's jump included.
const maxJumps = 16

// Validate reports everything that is wrong with the plan, joined, each a [*PlanError]; nil when nothing is. [Build] has
// called it already; it is of use for a plan that was made otherwise.
func (p *Plan) Validate() error {
	v := validator{plan: p, ids: map[RuleID]bool{}, sets: map[SetName]Family{}}
	v.check("owner", p.Owner.Validate())
	for set := range p.Sets() {
		v.set(set)
	}
	kinds := map[TableKind]bool{}
	for table := range p.Tables() {
		at := "table " + table.Kind.String()
		if table.Kind.Hooks() == nil || kinds[table.Kind] {
			v.check(at, errors.New("a plan has at most one table of each kind, raw, mangle, nat or filter"))
			continue
		}
		kinds[table.Kind] = true
		v.table(table)
	}
	return errors.Join(v.errs...)
}

type validator struct {
	plan *Plan
	ids  map[RuleID]bool
	sets map[SetName]Family
	errs []error
}

// check records err, when it is one, with its place.
func (v *validator) check(at string, err error) {
	if err != nil {
		v.errs = append(v.errs, &PlanError{At: at, Err: err})
	}
}

func (v *validator) set(s Set) {
	at := fmt.Sprintf("set %q", string(s.Name))
	v.check(at, s.Name.Validate())
	v.check(at, validateWhy(s.Why))
	if _, double := v.sets[s.Name]; double {
		v.check(at, errors.New("another set has the same name"))
	}
	if s.Family == BothFamilies || s.Members.Family() != s.Family {
		v.check(at, errors.New("its members must be of one family, and there must be one: split it by family, leave out what is empty"))
	}
	v.sets[s.Name] = s.Family
}

func (v *validator) table(t Table) {
	for i, chain := range t.Chains {
		at := t.Kind.String() + "/" + string(chain.Name)
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
		v.check("table "+t.Kind.String(), err)
		return
	}
	for _, chain := range t.Chains {
		for i, rule := range chain.Rules {
			v.rule(t, Position{t.Kind, chain.Name, i}, rule, reach[chain.Name])
		}
	}
}

func (v *validator) entry(t Table, e Entry) {
	at := fmt.Sprintf("entry %q", string(e.ID))
	v.id(at, e.ID)
	v.check(at, validateWhy(e.Why))
	if !slices.Contains(t.Kind.Hooks(), e.Hook) {
		v.check(at, fmt.Errorf("table %s has no hook %s: use one of %v", t.Kind, e.Hook, t.Kind.Hooks()))
		return
	}
	if _, ok := t.Chain(e.Chain); !ok {
		v.check(at, fmt.Errorf("chain %q is not in the table", string(e.Chain)))
	}
	v.match(at, e.Match, []Hook{e.Hook})
}

func (v *validator) rule(t Table, pos Position, r Rule, hooks []Hook) {
	at := fmt.Sprintf("%s %q", pos, string(r.ID))
	v.id(at, r.ID)
	v.check(at, validateWhy(r.Why))
	v.match(at, r.Match, hooks)
	v.check(at, validateAction(t, r, hooks))
}

func (v *validator) id(at string, id RuleID) {
	v.check(at, id.Validate())
	if v.ids[id] {
		v.check(at, errors.New("another rule or entry has the same id"))
	}
	v.ids[id] = true
}

// validateAction checks what the types leave open: ports, protocols, hooks, and jump targets.
func validateAction(t Table, r Rule, hooks []Hook) error {
	switch action := r.Action.(type) {
	case Accept, Return:
		return nil
	case Drop:
		if t.Kind == NAT {
			return errors.New("a nat table cannot drop: it sees only the first packet of a connection; drop in filter or mangle")
		}
		return nil
	case Jump:
		if _, ok := t.Chain(action.Chain); !ok {
			return fmt.Errorf("chain %q, the target of the jump, is not in the table", string(action.Chain))
		}
		return nil
	case RedirectTo:
		return validateRedirect(t, r, action, hooks)
	default:
		return errors.New("the rule has no action")
	}
}

func validateRedirect(t Table, r Rule, action RedirectTo, hooks []Hook) error {
	switch {
	case t.Kind != NAT:
		return fmt.Errorf("redirect belongs into a nat table, not into %s", t.Kind)
	case action.Port == 0:
		return errors.New("redirect to port 0: name the proxy's port")
	case r.Match.L4.Protocol() == AnyProtocol:
		return errors.New("redirect needs a protocol: match TCP() or UDP()")
	}
	for _, hook := range hooks {
		if hook != Prerouting && hook != Output {
			return fmt.Errorf("redirect works in prerouting and output only, and the chain is reached from %s", hook)
		}
	}
	return nil
}
