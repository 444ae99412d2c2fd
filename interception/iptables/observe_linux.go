// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// observe reads what the namespace holds of the owner.
func (a *application) observe(ctx context.Context) (interception.State, error) {
	if err := a.look(ctx); err != nil {
		return interception.State{}, err
	}
	state := interception.State{Owner: a.owner.Name}
	f := folder{owner: a.owner.Name, prefix: a.prefix}
	flavours := []Flavour{Legacy, NFT}
	for _, kind := range interception.TableKinds() {
		for _, flavour := range flavours {
			v4 := a.s.rules[tool{flavour, interception.IPv4}][kind].withoutLedger(a.prefix)
			v6 := a.s.rules[tool{flavour, interception.IPv6}][kind]
			if t, ok := f.table(kind, v4, v6); ok {
				state.Objects = append(state.Objects, t)
			}
		}
	}
	return state, nil
}

// withoutLedger is the table as a plan has it.
func (t table) withoutLedger(prefix string) table {
	t.chains = slices.DeleteFunc(slices.Clone(t.chains), func(c chain) bool { return c.name == ledgerName(prefix) })
	return t
}
