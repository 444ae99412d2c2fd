// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// liveSet names a live set of addresses in a namespace.
type liveSet struct {
	netns interception.NetnsID
	owner interception.Owner
	name  interception.SetName
}

// UpdateSet changes the members of a live set of addresses, as [interception.SetEdit] says.
func (d *Dataplane) UpdateSet(
	ctx context.Context, ns *interception.Netns, owner interception.Owner, set interception.SetName, edit interception.SetEdit,
) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.updateSet(ctx, ns, Call{Verb: UpdateSet, Owner: owner, Set: set, Edit: edit}); err != nil {
		return fmt.Errorf("edit set %s of %s in %s: %w", set, owner, ns, err)
	}
	return nil
}

func (d *Dataplane) updateSet(ctx context.Context, ns *interception.Netns, call Call) error {
	err := call.Owner.Validate()
	if err == nil && ns.Check() == nil {
		err = d.editError(ns.ID(), call)
	}
	if err := d.begin(ctx, ns, call, err); err != nil {
		return err
	}
	last := &d.calls[len(d.calls)-1]
	key := liveSet{last.Netns, call.Owner, call.Set}
	members := maps.Clone(d.members[key])
	maps.DeleteFunc(members, func(a netip.Addr, owner string) bool {
		wanted, removed := call.Edit.Remove[a]
		return removed && wanted == owner
	})
	if members == nil {
		members = map[netip.Addr]string{}
	}
	maps.Copy(members, call.Edit.Add)
	if d.members == nil {
		d.members = map[liveSet]map[netip.Addr]string{}
	}
	d.members[key] = members
	if d.options.After != nil {
		last.Err = d.options.After(*last)
	}
	return last.Err
}

// editError returns why the namespace cannot take the edit.
func (d *Dataplane) editError(id interception.NetnsID, call Call) error {
	for _, object := range d.namespaces[id][call.Owner] {
		if s, ok := object.(interception.Set); ok && s.Name == call.Set && s.Addresses {
			return call.Edit.Validate(s.Family)
		}
	}
	return fmt.Errorf("there is no such live set of addresses: %w: apply a plan that has it", fs.ErrNotExist)
}

// keepMembers forgets the members of the owner's sets in a namespace that its objects lack now.
func (d *Dataplane) keepMembers(id interception.NetnsID, owner interception.Owner) {
	for key, members := range d.members {
		stays := func(o interception.Object) bool {
			s, ok := o.(interception.Set)
			if !ok || s.Name != key.name || !s.Addresses {
				return false
			}
			for a := range members {
				return interception.FamilyOf(a) == s.Family
			}
			return true
		}
		if key.netns == id && key.owner == owner && !slices.ContainsFunc(d.namespaces[id][owner], stays) {
			delete(d.members, key)
		}
	}
}

// observed returns the owner's state: its objects without provenance, with the members of live
// sets, and the foreign routes in its routing tables.
func (d *Dataplane) observed(id interception.NetnsID, owner interception.Owner) interception.State {
	state := interception.State{Owner: owner, Objects: clone(d.namespaces[id][owner], false), Deviations: foreignRoutes(d.namespaces[id], owner)}
	for i, object := range state.Objects {
		s, ok := object.(interception.Set)
		members := d.members[liveSet{id, owner, s.Name}]
		if !ok || len(members) == 0 {
			continue
		}
		var prefixes []netip.Prefix
		for a := range members {
			prefixes = append(prefixes, netip.PrefixFrom(a, a.BitLen()))
		}
		s.Members = interception.Prefixes(prefixes...)
		state.Objects[i] = s
		if state.Owners == nil {
			state.Owners = map[interception.SetName]map[netip.Addr]string{}
		}
		state.Owners[s.Name] = maps.Clone(members)
	}
	return state
}
