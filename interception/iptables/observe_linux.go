// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// Observe implements [backend.Rules].
func (a *ownedRules) Observe(ctx context.Context, state *interception.State) (err error) {
	if err := a.observeSets(state); err != nil {
		return err
	}
	f := folder{owner: state.Owner, prefix: a.prefix}
	for _, object := range state.Objects {
		if set, is := object.(interception.Set); is {
			set.Members, set.Why = interception.PrefixSet{}, observed
			f.sets = append(f.sets, set)
		}
	}
	for _, kind := range interception.TableKinds() {
		for _, flavour := range []Flavour{Legacy, NFT} {
			v4 := a.s.rules[tool{flavour, interception.IPv4}][kind].withoutLedger(a.prefix)
			v6 := a.s.rules[tool{flavour, interception.IPv6}][kind]
			if t, ok := f.table(kind, v4, v6); ok {
				state.Objects, state.NoPriorities = append(state.Objects, t), true
			}
		}
	}
	if a.options.Foreign {
		state.Foreign, err = a.foreign(ctx)
	}
	return err
}

func (a *ownedRules) foreign(ctx context.Context) ([]interception.ForeignChain, error) {
	found, err := find(a.ns.File(), a.options.Flavour)
	if err != nil {
		return nil, err
	}
	var chains []interception.ForeignChain
	for _, t := range everyTool(a.s.flavour) {
		if t.flavour == Legacy && len(found.legacy[t.family]) == 0 || t.flavour == NFT && len(found.nft[t.family]) == 0 {
			continue
		}
		l, err := a.tools.list(ctx, t)
		if err != nil {
			return nil, err
		}
		chains = append(chains, l.foreign(t, a.prefix)...)
	}
	return chains, nil
}

// withoutLedger returns the table as a plan has it.
func (t table) withoutLedger(prefix string) table {
	t.chains = slices.DeleteFunc(slices.Clone(t.chains), func(c chain) bool { return c.name == ledgerName(prefix) })
	return t
}
