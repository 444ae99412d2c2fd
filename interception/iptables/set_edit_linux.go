// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
	"github.com/meshcni/meshcni/internal/ipset"
	"github.com/meshcni/meshcni/internal/namespace"
	"github.com/meshcni/meshcni/internal/nfnetlink"
)

// Beside a set of addresses, whose name ends in a, there is one with a token, which each edit
// changes, and for a moment one that is to replace it.
const (
	addressesSuffix = "a"
	tokenSuffix     = "t"
	nextSuffix      = "n"
)

// index is what a dataplane knows of the members of a set. The kernel finds no owner of one member,
// so without it each edit would read all of them.
type index struct {
	mu     sync.Mutex
	token  string // the set's, when the owners were read; "" if they are not known
	owners map[netip.Addr]string
}

// indices are those of a dataplane, by namespace and ipset.
type indices struct {
	mu  sync.Mutex
	all map[indexKey]*index
}

type indexKey struct {
	namespace interception.NetnsID
	ipset     string
}

// of returns the index of a set.
func (i *indices) of(key indexKey) *index {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.all == nil {
		i.all = map[indexKey]*index{}
	}
	for other := range i.all {
		if i.all[key] != nil || len(i.all) < maxIndices {
			break
		}
		delete(i.all, other)
	}
	if i.all[key] == nil {
		i.all[key] = &index{}
	}
	return i.all[key]
}

// maxIndices bounds the memory for namespaces that are gone by now.
const maxIndices = 64

// compare has the next edit read the members if they are not those of the index: another program
// has changed them.
func (i *indices) compare(key indexKey, owners map[netip.Addr]string) {
	i.mu.Lock()
	known := i.all[key]
	i.mu.Unlock()
	if known == nil {
		return
	}
	known.mu.Lock()
	defer known.mu.Unlock()
	if !maps.Equal(known.owners, owners) {
		known.token = ""
	}
}

// forget drops the index of a set that is gone.
func (i *indices) forget(key indexKey) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.all, key)
}

func (d *Dataplane) updateSet(
	ctx context.Context, ns *interception.Netns, owner interception.Owner, set interception.SetName, edit interception.SetEdit,
) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, release, err := namespace.Lock(ctx, ns.File())
	if err != nil {
		return err
	}
	defer release()
	return d.editSet(ctx, ns, owner, set, edit)
}

// editSet is updateSet for a caller that holds the namespace's lock.
func (d *Dataplane) editSet(
	ctx context.Context, ns *interception.Netns, owner interception.Owner, set interception.SetName, edit interception.SetEdit,
) error {
	socket, err := ipset.Dial(d.backend.Kernel(ns.File()))
	if err != nil {
		return err
	}
	defer func() { _ = socket.Close() }()
	name, wanted, err := findSet(socket, owner, set)
	if err == nil {
		err = edit.Validate(wanted.Family)
	}
	if err != nil {
		return err
	}
	key := indexKey{ns.ID(), name}
	known := d.indices.of(key)
	known.mu.Lock()
	defer known.mu.Unlock()
	s := setEditing{socket: socket, name: name, index: known, edit: edit, set: wanted}
	// A second attempt finds out by itself what came of one whose answer is lost.
	for err = s.attempt(); errors.Is(err, nfnetlink.ErrNoAnswer) && ctx.Err() == nil; {
		err = s.attempt()
	}
	if errors.Is(err, fs.ErrNotExist) {
		d.indices.forget(key)
	}
	return err
}

// findSet returns the name of the ipset of a live set of addresses, and the set.
func findSet(s *ipset.Socket, owner interception.Owner, set interception.SetName) (string, interception.Set, error) {
	for _, family := range families() {
		wanted := interception.Set{Name: set, Family: family, Live: true, Addresses: true}
		name, err := lower.IPSet(owner, wanted)
		if err != nil {
			return "", wanted, err
		}
		is, of, err := s.Form(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && (is != typeOf(wanted) || of != family) {
			err = checkForm(s, name, wanted)
		}
		return name, wanted, err
	}
	return "", interception.Set{}, fmt.Errorf("there is no such live set of addresses of %s: %w: apply a plan that has it", owner, fs.ErrNotExist)
}

// checkForm returns an error if an ipset cannot be a live set.
func checkForm(s *ipset.Socket, name string, wanted interception.Set) error {
	there, err := s.Header(name)
	if err == nil && !isForm(there, wanted) {
		err = fmt.Errorf("ipset %s is %s, which another program has made: apply the plan again", name, formText(there))
	}
	return err
}

// setEditing is an edit of an ipset.
type setEditing struct {
	socket *ipset.Socket
	name   string
	index  *index
	edit   interception.SetEdit
	set    interception.Set
}

// attempt makes the edit, unless the members are as it wants. A token that is not the index's means
// that another process has edited the set, or that an edit has failed half-way.
func (s *setEditing) attempt() error {
	token, err := s.readToken()
	if err != nil {
		return err
	}
	known := token != "" && token == s.index.token
	if !known {
		err = s.readMembers()
	}
	removed, added := s.changes()
	if known && (len(s.edit.Remove)+len(s.edit.Add) > 1 || len(removed)+len(added) == 0) {
		err = s.readForeign()
		removed, added = s.changes()
	}
	if err != nil {
		return err
	}
	if len(removed)+len(added) > 0 {
		s.index.token = "" // until the edit has succeeded
		if token, err = s.writeToken(); err != nil {
			return err
		}
		if err := s.apply(removed, added); err != nil {
			return err
		}
		for address := range removed {
			delete(s.index.owners, address)
		}
		maps.Copy(s.index.owners, added)
	}
	s.index.token = token
	return nil
}

// changes returns the members to delete and to add. The comment of a member that changes hands is
// replaced.
func (s *setEditing) changes() (removed, added map[netip.Addr]string) {
	removed, added = map[netip.Addr]string{}, map[netip.Addr]string{}
	for address, owner := range s.edit.Remove {
		if has, is := s.index.owners[address]; is && has == owner {
			removed[address] = owner
		}
	}
	for address, owner := range s.edit.Add {
		if s.index.owners[address] != owner {
			added[address] = owner
		}
	}
	return removed, added
}

// apply makes a single change at once. The kernel has no transaction for several: they are made in
// a copy, which then takes the set's place.
func (s *setEditing) apply(removed, added map[netip.Addr]string) error {
	if len(removed)+len(added) == 1 {
		for _, member := range members(removed) {
			return s.socket.Delete(s.name, member)
		}
		return s.socket.Add(s.name, members(added)...)
	}
	all := maps.Clone(s.index.owners)
	for address := range removed {
		delete(all, address)
	}
	maps.Copy(all, added)
	next := s.other(nextSuffix)
	err := s.socket.Destroy(next) // an edit that was killed may have left it
	if err == nil {
		err = s.socket.Create(next, ipset.OfAddresses, s.set.Family)
	}
	if err == nil {
		err = s.socket.Add(next, members(all)...)
	}
	if err == nil {
		err = s.socket.Swap(s.name, next)
	}
	return errors.Join(err, s.socket.Destroy(next))
}

func (s *setEditing) other(suffix string) string {
	return strings.TrimSuffix(s.name, addressesSuffix) + suffix
}

func members(of map[netip.Addr]string) []ipset.Member {
	var all []ipset.Member
	for _, address := range slices.SortedFunc(maps.Keys(of), netip.Addr.Compare) {
		all = append(all, ipset.Member{Prefix: netip.PrefixFrom(address, address.BitLen()), Comment: of[address]})
	}
	return all
}

// readForeign reads the members if other programs have changed them: they write no token, which
// shows in the number. The kernel takes its time to count, and an edit of one member that changes
// it needs no other.
func (s *setEditing) readForeign() error {
	there, err := s.socket.Header(s.name)
	if err == nil && int(there.Members) != len(s.index.owners) {
		err = s.readMembers()
	}
	return err
}

func (s *setEditing) readMembers() error {
	if err := checkForm(s.socket, s.name, s.set); err != nil {
		return err
	}
	set, err := s.socket.Read(s.name)
	if err != nil {
		return err
	}
	s.index.owners = map[netip.Addr]string{}
	for _, m := range set.Members {
		s.index.owners[m.Prefix.Addr()] = m.Comment
	}
	return nil
}

// readToken returns the set's token, and "" if it has none yet.
func (s *setEditing) readToken() (string, error) {
	set, err := s.socket.Read(s.other(tokenSuffix))
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(set.Members) != 1 {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return set.Members[0].Comment, nil
}

// writeToken writes a new token, by which other processes know that the members have changed.
func (s *setEditing) writeToken() (string, error) {
	// No program gains anything by guessing it: who may write ipsets may write the members.
	token, name := strconv.FormatUint(rand.Uint64(), 36), s.other(tokenSuffix) //nolint:gosec // see above
	at := ipset.Member{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 32), Comment: token}
	err := s.socket.Add(name, at)
	if errors.Is(err, fs.ErrNotExist) {
		err = s.socket.Create(name, ipset.OfAddresses, interception.IPv4)
		if err == nil {
			err = s.socket.Add(name, at)
		}
	}
	return token, err
}
