// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/nfnetlink"
	"github.com/meshcni/meshcni/internal/route"
)

// observe reads everything of one generation of the rules, and then what stands beside them.
func (d *Dataplane) observe(ctx context.Context, ns *interception.Netns, owner interception.Owner) (interception.State, error) {
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
		seen, err := d.see(rules, routes, owner)
		if err == nil && d.foreign {
			seen.state.Foreign, err = readForeign(rules, owner)
		}
		after, err2 := rules.Generation()
		if err2 != nil {
			return interception.State{}, err2
		}
		if after == before {
			return seen.state, err
		}
	}
	return interception.State{}, fmt.Errorf("others change the rules of the namespace all the time: given up after %d attempts", maxAttempts)
}

// sight is what was seen of an owner.
type sight struct {
	state  interception.State
	table  *kernelTable // nil when there is none
	record route.Record
}

// see reads what the owner has.
func (d *Dataplane) see(rules *nfnetlink.Socket, routes *route.Socket, owner interception.Owner) (sight, error) {
	table, err := readTable(rules, unix.NFPROTO_INET, string(owner))
	if err != nil {
		return sight{}, err
	}
	s := sight{state: interception.State{Owner: owner}, table: table}
	if table != nil {
		members := func(set kernelSet) bool { return set.strange == "" && set.name != ledgerSet }
		if err := table.readElements(rules, members); err != nil {
			return sight{}, err
		}
		if s.record, err = readLedger(rules, string(owner)); err != nil {
			return sight{}, err
		}
	}
	objects, deviations, err := routes.Observe(route.Owner{Name: owner, Protocol: d.protocol(owner)}, s.record)
	if err != nil {
		return sight{}, err
	}
	l := readLayout(table)
	s.state.Objects = slices.Concat(objects, l.objects())
	s.state.Deviations = slices.Concat(deviations, l.deviations)
	s.state.Dormant = table != nil && table.flags&dormant != 0
	return s, nil
}
