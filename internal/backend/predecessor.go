// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/route"
)

// Predecessor is a dataplane that may have installed an owner's rules earlier. All dataplanes mark
// what precedes the rules, such as routes, in the same way, so only the rules and the record kept
// with them change hands.
//
// Apply and Remove hold the namespace's lock when they call RemoveRules and Members, and may hold
// it when they call Remembered. The methods do not take the lock themselves.
type Predecessor interface {
	// Name returns the dataplane's name, such as [NFTables].
	Name() string
	// Remembered reports whether the dataplane has rules of owner in ns. It returns the lines that
	// it has kept with them about the state before.
	Remembered(ctx context.Context, ns *interception.Netns, owner interception.Owner) (lines []string, found bool, err error)
	// RemoveRules removes the owner's rules and the lines from ns, and leaves everything else.
	RemoveRules(ctx context.Context, ns *interception.Netns, owner interception.Owner) error
	// Members returns the members of the owner's live sets of single addresses, as in
	// [interception.State].Owners.
	Members(ctx context.Context, ns *interception.Netns, owner interception.Owner) (Members, error)
}

// Members are the members of live sets of single addresses, with their owners.
type Members = map[interception.SetName]map[netip.Addr]string

// The names of this module's dataplanes.
const (
	NFTables = "nftables"
	IPTables = "iptables"
)

// Predecessors returns the dataplanes as predecessors. It returns an error for one that is not of
// this module.
func Predecessors(dataplanes []interception.Dataplane) ([]Predecessor, error) {
	var all []Predecessor
	for i, d := range dataplanes {
		p, is := d.(Predecessor)
		if !is {
			return nil, fmt.Errorf("predecessor %d is a %T: give a dataplane of package nftables or iptables", i, d)
		}
		all = append(all, p)
	}
	return all, nil
}

// Heritage has the methods of a [Predecessor]. A backend's own Dataplane embeds one.
type Heritage struct {
	name string
	of   *Dataplane
}

// Heritage returns the dataplane as a predecessor of that name.
func (d *Dataplane) Heritage(name string) Heritage { return Heritage{name, d} }

// Name implements [Predecessor].
func (h Heritage) Name() string { return h.name }

// Successor is a dataplane that can take over from others, and they from it.
type Successor interface {
	interception.Dataplane
	Predecessor
}

// inheritance is what predecessors have of an owner in a namespace.
type inheritance struct {
	// from are the predecessors that have rules of the owner.
	from []Predecessor
	// record is what they remember with them.
	record route.Record
}

// inherit returns what predecessors have of the owner in ns.
func inherit(ctx context.Context, all []Predecessor, ns *interception.Netns, owner interception.Owner) (inheritance, error) {
	var i inheritance
	for _, p := range all {
		lines, found, err := p.Remembered(ctx, ns, owner)
		if err != nil {
			return inheritance{}, fmt.Errorf("look for rules of %s: %w", p.Name(), err)
		}
		if !found {
			continue
		}
		record, err := route.ParseRecord(lines)
		if err != nil {
			return inheritance{}, fmt.Errorf("rules of %s: %w", p.Name(), err)
		}
		i.from, i.record = append(i.from, p), i.record.With(record)
	}
	return i, nil
}

// relieve removes the predecessors' rules unless that is done already. It ignores the end of the
// context: by then other rules are in place, or no rules are wanted.
func (i *inheritance) relieve(ctx context.Context, ns *interception.Netns, owner interception.Owner) error {
	var left []Predecessor
	var errs []error
	for _, p := range i.from {
		if err := p.RemoveRules(context.WithoutCancel(ctx), ns, owner); err != nil {
			left, errs = append(left, p), append(errs, fmt.Errorf("rules of %s are left: %w", p.Name(), err))
		}
	}
	i.from = left
	return errors.Join(errs...)
}

// carry returns what a plan's live sets of single addresses lack of the predecessors' members.
// Members without an owner are another program's, and are left out.
func (i *inheritance) carry(ctx context.Context, ns *interception.Netns, p *interception.Plan, has Members) (Members, error) {
	missing := Members{}
	for _, from := range i.from {
		theirs, err := from.Members(ctx, ns, p.Owner)
		if err != nil {
			return nil, fmt.Errorf("read the sets of %s: %w", from.Name(), err)
		}
		for set := range addressSets(p) {
			lacks := maps.Clone(theirs[set.Name])
			maps.DeleteFunc(lacks, func(a netip.Addr, owner string) bool {
				_, there := has[set.Name][a]
				return there || owner == "" || interception.FamilyOf(a) != set.Family
			})
			if missing[set.Name] == nil {
				missing[set.Name] = map[netip.Addr]string{}
			}
			maps.Copy(missing[set.Name], lacks)
		}
	}
	return missing, nil
}

// addressSets yields a plan's live sets of single addresses.
func addressSets(p *interception.Plan) iter.Seq[interception.Set] {
	return func(yield func(interception.Set) bool) {
		for set := range p.Sets() {
			if set.Live && set.Addresses && !yield(set) {
				return
			}
		}
	}
}
