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
	"github.com/meshcni/meshcni/internal/backend"
	"github.com/meshcni/meshcni/internal/route"
)

// ownedRules are an owner's chains in a namespace, and the jumps to them. They implement
// [backend.Rules].
type ownedRules struct {
	*Dataplane
	ns     *interception.Netns
	plan   *interception.Plan // the plan of Write; before Write, one without objects
	prefix string
	tools  *tools
	s      standing
}

// standing is what the namespace has of the owner.
type standing struct {
	flavour Flavour // for the new plan
	rules   map[tool]ruleset
	record  route.Record
	shared  error    // another owner has the same protocol number
	ipsets  []string // the names of the owner's
}

func (s standing) isEmpty() bool {
	for _, set := range s.rules {
		if !set.isEmpty() {
			return false
		}
	}
	return true
}

// Look implements [backend.Rules].
func (a *ownedRules) Look(ctx context.Context) (backend.Standing, error) {
	err := a.look(ctx)
	return backend.Standing{Found: !a.s.isEmpty() || len(a.s.ipsets) > 0, Record: a.s.record, Shared: a.s.shared, Blocked: a.strangers()}, err
}

// look reads the present state, with as few programs as possible.
func (a *ownedRules) look(ctx context.Context) error {
	found, err := find(a.ns.File(), a.options.Flavour)
	if err != nil {
		return err
	}
	found.lookIntoLegacy(a.ns.File())
	former := a.s.rules
	a.s = standing{rules: map[tool]ruleset{}}
	for _, t := range everyTool(NFT) {
		// Hooks that the owner's jumps were in a moment ago tell where they go back to.
		if !found.mayOwn(t, a.prefix) && former[t].isEmpty() {
			if chains, known := found.chains(t); known && t.flavour == Legacy {
				a.s.shared = errors.Join(a.s.shared, a.sharedProtocol(chains))
			}
			continue
		}
		err := a.read(ctx, t, found)
		if t.flavour == Legacy && a.options.Flavour != Legacy && errors.Is(err, errMissing) {
			continue // another installation of iptables made these tables
		}
		if err != nil {
			return err
		}
	}
	if err := a.lookForSets(); err != nil {
		return err
	}
	a.s.flavour = a.choose(found)
	a.s.record, err = readLedger(a.prefix, a.s.rules[tool{NFT, ledgerFamily}], a.s.rules[tool{Legacy, ledgerFamily}])
	return err
}

// read lists what the owner has in the kernel of a tool.
func (a *ownedRules) read(ctx context.Context, t tool, found findings) error {
	chains, _ := found.chains(t)
	listing, ok := listing{}, false
	if crowded(chains, a.prefix) {
		listing, ok = a.tools.listOwned(ctx, t, ask(chains, a.prefix), a.prefix)
	}
	if !ok {
		var err error
		if listing, err = a.tools.list(ctx, t); err != nil {
			return err
		}
		chains = listing.kernelChains()
	}
	a.s.rules[t] = listing.owned(a.prefix)
	a.s.shared = errors.Join(a.s.shared, a.sharedProtocol(chains))
	return nil
}

// sharedProtocol returns an error if another owner with the same protocol number has a chain.
func (a *ownedRules) sharedProtocol(chains []kernelChain) error {
	own := a.backend.Protocols.Owner(a.plan.Owner)
	for _, c := range chains {
		head, _, ok := strings.Cut(c.name, "_")
		if _, ofIPTables := kindOf(c.table); !ok || c.base || !ofIPTables {
			continue
		}
		other := a.backend.Protocols.Owner(interception.Owner(strings.ToLower(head)))
		if other.Name != own.Name && other.Name.Validate() == nil && other.Protocol == own.Protocol {
			return fmt.Errorf("chain %s is there, and its owner %s has the same protocol number %d as %s: set one of them in Options.Protocols",
				c.name, other.Name, other.Protocol, own.Name)
		}
	}
	return nil
}

// strangers returns an error about other programs' rules that keep the owner's chains in use.
func (a *ownedRules) strangers() error {
	for t, set := range a.s.rules {
		for kind, table := range set {
			if len(table.strangers) > 0 {
				return fmt.Errorf("table %s of %s: another program's rule leads into a chain of %s: %q: delete it first",
					kind, t.family, a.plan.Owner, table.strangers[0])
			}
		}
	}
	return nil
}

func (a *ownedRules) choose(f findings) Flavour {
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

// Write implements [backend.Rules].
func (a *ownedRules) Write(ctx context.Context, p *interception.Plan, record route.Record) error {
	a.plan = p
	made, err := a.makeSets()
	if err == nil {
		err = a.orRestore(ctx, func() error {
			if err := a.putRules(ctx, a.s.isEmpty(), record); err != nil {
				return err
			}
			return a.released(ctx, a.superfluous())
		})
	}
	if err != nil {
		undone := context.WithoutCancel(ctx)
		return errors.Join(err, a.released(undone, made), a.removeSets(made))
	}
	return a.removeSets(a.superfluous())
}

// Remember implements [backend.Rules].
func (a *ownedRules) Remember(ctx context.Context, record route.Record) error {
	return a.orRestore(ctx, func() error {
		sets, err := a.remembering(a.s.rules, record)
		if err != nil {
			return err
		}
		return a.commit(ctx, sets)
	})
}

// orRestore restores the former rules when write fails.
func (a *ownedRules) orRestore(ctx context.Context, write func() error) error {
	before := a.s.rules
	if err := write(); err != nil {
		return errors.Join(err, a.restoreRules(ctx, before))
	}
	return nil
}

// putRules puts the plan's rules in place, and the record with them.
func (a *ownedRules) putRules(ctx context.Context, fresh bool, record route.Record) error {
	wanted, texts, err := a.wanted()
	if err != nil {
		return err
	}
	if fresh && record.IsEmpty() {
		err := a.create(ctx, texts)
		if a.options.Flavour != Automatic || a.s.flavour != NFT || !errors.Is(err, errMissing) {
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
func (a *ownedRules) wanted() (map[tool]ruleset, map[tool]string, error) {
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
func (a *ownedRules) remembering(sets map[tool]ruleset, record route.Record) (map[tool]ruleset, error) {
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

// nothing returns an empty ruleset for each tool that has rules.
func (a *ownedRules) nothing() map[tool]ruleset {
	nothing := map[tool]ruleset{}
	for t := range a.s.rules {
		nothing[t] = ruleset{}
	}
	return nothing
}
