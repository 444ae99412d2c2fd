// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
	"github.com/meshcni/meshcni/internal/namespace"
	"github.com/meshcni/meshcni/internal/nfnetlink"
	"github.com/meshcni/meshcni/internal/route"
)

// observe reads everything within one generation of the rules. The lock keeps other calls from
// being half way through a change of rules and routes.
func (d *Dataplane) observe(ctx context.Context, ns *interception.Netns, owner interception.Owner) (interception.State, error) {
	ctx, release, err := namespace.Lock(ctx, ns.File())
	if err != nil {
		return interception.State{}, err
	}
	defer release()
	rules, err := d.dial(ctx, ns)
	if err != nil {
		return interception.State{}, err
	}
	defer func() { _ = rules.Close() }()
	routes, err := route.Dial(d.open(ns.File()))
	if err != nil {
		return interception.State{}, err
	}
	defer routes.Close()
	for range maxAttempts {
		if err := ctx.Err(); err != nil {
			return interception.State{}, err
		}
		before, err := rules.Generation()
		if err != nil {
			return interception.State{}, withoutSubsystem(err)
		}
		state, err := d.see(rules, routes, owner)
		if err == nil && d.foreign {
			state.Foreign, err = readForeign(rules, owner)
		}
		after, err2 := rules.Generation()
		if err2 != nil {
			return interception.State{}, err2
		}
		if after == before {
			return state, err
		}
	}
	return interception.State{}, fmt.Errorf("others change the rules of the namespace all the time: given up after %d attempts", maxAttempts)
}

func (d *Dataplane) see(rules *nfnetlink.Socket, routes *route.Socket, owner interception.Owner) (interception.State, error) {
	table, err := readOwned(rules, owner)
	if err != nil {
		return interception.State{}, err
	}
	var record route.Record
	if table != nil {
		if record, err = readLedger(rules, string(owner)); err != nil {
			return interception.State{}, err
		}
	}
	objects, deviations, err := routes.Observe(d.protocols.Owner(owner), record)
	return stateOf(owner, table, objects, deviations), err
}

// readOwned reads the owner's table with its sets' members; nil when the table does not exist.
func readOwned(rules *nfnetlink.Socket, owner interception.Owner) (*kernelTable, error) {
	table, err := readTable(rules, unix.NFPROTO_INET, string(owner))
	if err != nil || table == nil {
		return nil, err
	}
	return table, table.readElements(rules, func(set kernelSet) bool { return set.strange == "" && set.name != ledgerSet })
}

// stateOf joins the contents of the owner's table with the objects outside it.
func stateOf(
	owner interception.Owner, table *kernelTable, objects []interception.Object, deviations []interception.Deviation,
) interception.State {
	l := readLayout(table)
	return interception.State{
		Owner: owner, Objects: slices.Concat(objects, l.objects()), Deviations: slices.Concat(deviations, l.deviations),
		Dormant: table != nil && table.flags&dormant != 0,
	}
}

// stands reports whether the namespace holds exactly the plan, with its comments and the record.
func (a *application) stands(s *standing, change *route.Change) (bool, error) {
	if !s.table || !change.After().Equal(s.record) {
		return false, nil
	}
	table, err := readOwned(a.rules, a.plan.Owner)
	if err != nil {
		return false, err
	}
	now, err := a.rules.Generation()
	if err == nil && now != s.generation {
		err = fmt.Errorf("somebody has changed the rules: %w", unix.ERESTART)
	}
	if err != nil || table == nil || !sayTheSame(table, a.plan) {
		return false, err
	}
	objects, deviations, err := change.Observe()
	if err != nil {
		return false, err
	}
	return interception.Diff(a.plan, stateOf(a.plan.Owner, table, objects, deviations)) == nil, nil
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
	nobody := func(*kernelSet) (planSet, bool) { return planSet{}, false }
	var chains []interception.ForeignChain
	for _, c := range t.chains {
		f := interception.ForeignChain{Table: foreignFamilies()[t.family] + " " + printable(t.name), Name: printable(c.name)}
		if c.base {
			f.Hook, f.Type, f.Priority = hookName(t.family, c.hook), c.kind, c.priority
			f.Policy = interception.Drop{}
			if c.policy == policyAccept {
				f.Policy = interception.Accept{}
			}
		}
		for _, k := range c.rules {
			r := t.rule(k, nobody)
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
