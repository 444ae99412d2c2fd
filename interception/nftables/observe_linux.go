// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
	"github.com/meshcni/meshcni/internal/nfnetlink"
	"github.com/meshcni/meshcni/internal/route"
)

// Observe implements [backend.Rules]. It reads everything within one generation of the rules.
func (r *ownedRules) Observe(_ context.Context, state *interception.State) error {
	if r.missing != nil {
		return r.missing
	}
	table, err := readOwned(r.socket, r.owner)
	if err == nil {
		addTable(state, table)
		if r.foreign {
			state.Foreign, err = readForeign(r.socket, r.owner)
		}
	}
	return r.unchanged(err)
}

// unchanged returns the result of reading the rules, unless they have changed since Look.
func (r *ownedRules) unchanged(err error) error {
	now, failed := r.socket.Generation()
	if failed != nil {
		return failed
	}
	if now != r.generation {
		return fmt.Errorf("another program has changed the rules: %w", unix.ERESTART)
	}
	return err
}

// readOwned reads the owner's table with its sets' members; nil when the table does not exist.
func readOwned(rules *nfnetlink.Socket, owner interception.Owner) (*kernelTable, error) {
	table, err := readTable(rules, unix.NFPROTO_INET, string(owner))
	if err != nil || table == nil {
		return nil, err
	}
	return table, table.readElements(rules, func(set kernelSet) bool { return set.strange == "" && set.name != ledgerSet })
}

// addTable adds the contents of the owner's table to a state.
func addTable(state *interception.State, table *kernelTable) {
	l := readLayout(table)
	state.Objects, state.Deviations = append(state.Objects, l.objects()...), append(state.Deviations, l.deviations...)
	state.Owners = l.owners
	state.Dormant = table != nil && table.flags&dormant != 0
}

// holds reports whether the table is exactly what the plan and the record make, with its comments.
func (r *ownedRules) holds(p *interception.Plan, record route.Record) (bool, error) {
	if !r.table || !record.Equal(r.record) {
		return false, nil
	}
	table, err := readOwned(r.socket, r.owner)
	if err := r.unchanged(err); err != nil || table == nil || !sayTheSame(table, p) {
		return false, err
	}
	state := interception.State{Owner: r.owner}
	addTable(&state, table)
	return interception.Diff(route.RulesOf(p), state) == nil, nil
}

func sayTheSame(t *kernelTable, p *interception.Plan) bool {
	for set := range p.Sets() {
		same := func(k kernelSet) bool {
			found, ok := k.planSet()
			return ok && found.Name == set.Name && k.comment == set.Why
		}
		if !slices.ContainsFunc(t.sets, same) {
			return false
		}
	}
	for _, want := range lower.Chains(p) {
		i := slices.IndexFunc(t.chains, func(c kernelChain) bool { return c.name == want.Name })
		same := func(k kernelRule, r lower.Rule) bool { return k.comment == r.Comment }
		if i < 0 || !slices.EqualFunc(t.chains[i].rules, want.Rules, same) {
			return false
		}
	}
	return true
}

// foreignFamilies returns the families whose chains IP packets meet, with nft's words for them.
func foreignFamilies() map[uint8]string {
	return map[uint8]string{
		unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6", unix.NFPROTO_NETDEV: "netdev",
	}
}

// readForeign reads the chains of all tables but the owner's.
func readForeign(socket *nfnetlink.Socket, owner interception.Owner) ([]interception.ForeignChain, error) {
	var chains []interception.ForeignChain
	for _, family := range []uint8{unix.NFPROTO_NETDEV, unix.NFPROTO_INET, unix.NFPROTO_IPV4, unix.NFPROTO_IPV6} {
		messages, err := query(socket, unix.NFT_MSG_GETTABLE, family, func(*nfnetlink.Attributes) {})
		if err != nil {
			return nil, fmt.Errorf("list tables: %w", err)
		}
		for _, m := range messages {
			a := parseAttributes(m)
			table := &kernelTable{family: family, name: a.text(unix.NFTA_TABLE_NAME), flags: a.number(unix.NFTA_TABLE_FLAGS)}
			if family == unix.NFPROTO_INET && table.name == string(owner) || table.flags&dormant != 0 {
				continue
			}
			if err := table.read(socket); err != nil {
				return nil, err
			}
			constant := func(s kernelSet) bool { return s.flags&unix.NFT_SET_CONSTANT != 0 && s.strange == "" }
			if err := table.readElements(socket, constant); err != nil {
				return nil, err
			}
			chains = append(chains, table.foreign()...)
		}
	}
	return chains, nil
}

// foreign returns the table's chains in the form for other programs' chains.
func (t *kernelTable) foreign() []interception.ForeignChain {
	var chains []interception.ForeignChain
	for _, c := range t.chains {
		f := interception.ForeignChain{Table: foreignFamilies()[t.family] + " " + printable(t.name), Name: printable(c.name)}
		if c.base {
			f.Hook, f.Type, f.Priority = hookName(t.family, c.hook), c.kind, c.priority
			f.Policy = interception.Drop{}
			if c.policy == verdictAccept {
				f.Policy = interception.Accept{}
			}
		}
		for _, k := range c.rules {
			r := t.rule(k, nil)
			if r.Action == (interception.Opaque{Text: describe(nil)}) {
				continue
			}
			if jump, ok := r.Action.(interception.Jump); ok {
				r.Action = interception.Jump{Chain: interception.ChainName(printable(string(jump.Chain)))}
			}
			f.Rules = append(f.Rules, r)
		}
		chains = append(chains, f)
	}
	return chains
}
