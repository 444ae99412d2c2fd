// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/render"
	"github.com/meshcni/meshcni/internal/handover"
	"github.com/meshcni/meshcni/internal/route"
)

type application struct {
	*Dataplane
	ns     *interception.Netns
	plan   *interception.Plan
	prefix string
	owner  route.Owner
	routes *route.Socket
	tools  *tools
	s      standing
}

type standing struct {
	flavour Flavour // for the new plan
	rules   map[tool]ruleset
	record  route.Record
	shared  error // another owner has the same protocol number

	inherited handover.Inheritance
}

func (s standing) isEmpty() bool {
	for _, set := range s.rules {
		if !set.isEmpty() {
			return false
		}
	}
	return true
}

// look reads the present state, with as few programs as possible.
func (a *application) look(ctx context.Context) error {
	found, err := find(a.ns.File(), a.options.Flavour)
	if err != nil {
		return err
	}
	a.s = standing{rules: map[tool]ruleset{}}
	for _, flavour := range []Flavour{NFT, Legacy} {
		for _, family := range families() {
			t := tool{flavour, family}
			if !found.mayOwn(t, a.prefix) {
				continue
			}
			err := a.read(ctx, t)
			if flavour == Legacy && a.options.Flavour != Legacy && isMissing(err) {
				continue // another installation of iptables made these tables
			}
			if err != nil {
				return err
			}
		}
	}
	a.s.flavour = a.choose(found)
	a.s.record, err = readLedger(a.prefix, a.s.rules[tool{NFT, ledgerFamily}], a.s.rules[tool{Legacy, ledgerFamily}])
	if err != nil {
		return err
	}
	a.s.inherited, err = handover.Ask(ctx, a.options.Predecessor, a.ns, a.owner.Name)
	a.s.record = a.s.record.With(a.s.inherited.Record)
	return err
}

// read lists what the owner has in the kernel of a tool.
func (a *application) read(ctx context.Context, t tool) error {
	listing, err := a.tools.list(ctx, t)
	if err != nil {
		return err
	}
	a.s.rules[t] = listing.owned(a.prefix)
	a.s.shared = errors.Join(a.s.shared, a.sharedProtocol(listing))
	return nil
}

// sharedProtocol returns an error if another owner with the same protocol number has a chain.
func (a *application) sharedProtocol(l listing) error {
	for _, t := range l.tables {
		for _, c := range t.chains {
			head, _, ok := strings.Cut(c.name, "_")
			other := a.protocols.Owner(interception.Owner(strings.ToLower(head)))
			if ok && !c.kernel && other.Name != a.owner.Name && other.Name.Validate() == nil && other.Protocol == a.owner.Protocol {
				return fmt.Errorf("chain %s is there, and its owner %s has the same protocol number %d as %s: set one of them in Options.Protocols",
					c.name, other.Name, other.Protocol, a.owner.Name)
			}
		}
	}
	return nil
}

// strangers returns an error about other programs' rules that keep the owner's chains in use.
func (a *application) strangers() error {
	for t, set := range a.s.rules {
		for kind, table := range set {
			if len(table.strangers) > 0 {
				return fmt.Errorf("table %s of %s: a rule of somebody else leads into a chain of %s: %q: delete it first",
					kind, t.family, a.owner.Name, table.strangers[0])
			}
		}
	}
	return nil
}

func (a *application) choose(f findings) Flavour {
	owned := func(flavour Flavour) bool {
		return slices.ContainsFunc(families(), func(family interception.Family) bool { return !a.s.rules[tool{flavour, family}].isEmpty() })
	}
	switch {
	case a.options.Flavour != Automatic:
		return a.options.Flavour
	case owned(NFT):
		return NFT
	case owned(Legacy), f.has(Legacy) && !f.has(NFT), !f.nfTables:
		return Legacy
	default:
		return NFT
	}
}

// prepare reads the present state, and finds out what the plan needs besides the rules.
func (a *application) prepare(ctx context.Context, everything bool) (*route.Change, error) {
	if err := a.look(ctx); err != nil {
		return nil, err
	}
	if err := a.strangers(); err != nil {
		return nil, err
	}
	everything = everything || !a.s.isEmpty() || a.s.inherited.Found
	return a.routes.Prepare(a.plan, a.owner, route.Options{Record: a.s.record, Everything: everything, Shared: a.s.shared})
}

func (a *application) apply(ctx context.Context) error {
	change, err := a.prepare(ctx, false)
	if err != nil {
		return err
	}
	before, fresh := a.s.rules, a.s.isEmpty()
	during := change.During()
	// The former value of a sysctl must not get lost, whatever happens after the write.
	if len(during.Sysctls) > 0 && !during.Equal(a.s.record) {
		if err := a.remember(ctx, during); err != nil {
			return err
		}
		fresh = false
	}
	if err = change.Do(ctx); err == nil {
		if err = a.putRules(ctx, fresh, during); err != nil {
			err = errors.Join(err, change.Undo())
		}
	}
	if err != nil {
		return errors.Join(err, a.restoreRules(ctx, before))
	}
	if err := a.s.inherited.Relieve(ctx); err != nil {
		return fmt.Errorf("the plan stands, and %w", err)
	}
	return a.finish(ctx, change)
}

// putRules puts the plan's rules in place, and the record with them.
func (a *application) putRules(ctx context.Context, fresh bool, record route.Record) error {
	wanted, texts, err := a.wanted()
	if err != nil {
		return err
	}
	if fresh && record.IsEmpty() {
		err := a.create(ctx, texts)
		if a.options.Flavour != Automatic || a.s.flavour != NFT || !isMissing(err) {
			return err
		}
		a.s.flavour = Legacy
		return a.putRules(ctx, fresh, record)
	}
	if wanted, err = a.remembering(wanted, record); err != nil {
		return err
	}
	return a.commit(ctx, wanted)
}

// wanted returns the plan's rules for each tool in use; texts are inputs for an empty namespace.
func (a *application) wanted() (map[tool]ruleset, map[tool]string, error) {
	wanted, texts := a.nothing(), map[tool]string{}
	for _, family := range families() {
		text, err := render.IPTablesRestore(a.plan, family)
		if err != nil {
			return nil, nil, err
		}
		t := tool{a.s.flavour, family}
		if texts[t] = string(text); len(text) > 0 {
			if wanted[t], err = planned(string(text), a.prefix); err != nil {
				return nil, nil, err
			}
		}
	}
	return wanted, texts, nil
}

// remembering returns the rulesets with the ledger, in the flavour of the plan alone.
func (a *application) remembering(sets map[tool]ruleset, record route.Record) (map[tool]ruleset, error) {
	other := map[tool]ruleset{}
	for t, set := range sets {
		if t.family == ledgerFamily && t.flavour != a.s.flavour {
			var err error
			if set, err = set.withLedger(a.prefix, route.Record{}); err != nil {
				return nil, err
			}
		}
		other[t] = set
	}
	at := tool{a.s.flavour, ledgerFamily}
	set, err := other[at].withLedger(a.prefix, record)
	other[at] = set
	return other, err
}

// remember writes a record, and leaves the rules as they are.
func (a *application) remember(ctx context.Context, record route.Record) error {
	sets, err := a.remembering(a.s.rules, record)
	if err != nil {
		return err
	}
	return a.replace(ctx, sets)
}

// replace commits rules; when that fails, it restores the former rules.
func (a *application) replace(ctx context.Context, wanted map[tool]ruleset) error {
	before := a.s.rules
	if err := a.commit(ctx, wanted); err != nil {
		return errors.Join(err, a.restoreRules(ctx, before))
	}
	return nil
}

// finish removes what the owner had and the plan lacks, and then its record.
func (a *application) finish(ctx context.Context, change *route.Change) error {
	if err := change.Settle(ctx); err != nil || change.After().Equal(change.During()) {
		return err
	}
	return a.remember(context.WithoutCancel(ctx), change.After())
}

// remove removes what the owner has, and the record last.
func (a *application) remove(ctx context.Context) error {
	change, err := a.prepare(ctx, true)
	if err != nil {
		return err
	}
	for _, record := range []route.Record{a.s.record, {}} {
		sets, err := a.remembering(a.nothing(), record)
		if err != nil {
			return err
		}
		if record.IsEmpty() && !a.s.record.IsEmpty() {
			if err := change.Finish(); err != nil {
				return err
			}
		}
		if err := a.replace(ctx, sets); err != nil {
			return err
		}
		if err := a.s.inherited.Relieve(ctx); err != nil {
			return err
		}
	}
	return change.Finish()
}

// nothing returns an empty ruleset for each tool that has rules.
func (a *application) nothing() map[tool]ruleset {
	nothing := map[tool]ruleset{}
	for t := range a.s.rules {
		nothing[t] = ruleset{}
	}
	return nothing
}
