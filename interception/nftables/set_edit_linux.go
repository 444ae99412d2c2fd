// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/nfnetlink"
)

// setEditing is an edit of a live set of addresses.
type setEditing struct {
	socket *nfnetlink.Socket
	owner  interception.Owner
	set    interception.SetName
	edit   interception.SetEdit
}

// update edits at a generation of the rules, and begins again when another transaction was
// first. Among several editors one always gets on.
func (s *setEditing) update(ctx context.Context, in kernel.Namespace) error {
	var err error
	if s.socket, err = dial(in); err != nil {
		return err
	}
	defer func() { _ = s.socket.Close() }()
	var unknown error
	for {
		if err := ctx.Err(); err != nil {
			if unknown != nil {
				return fmt.Errorf("%w, and it is unknown whether the set is changed: %w", err, unknown)
			}
			return err
		}
		// A second attempt finds out by itself what came of a first one whose answer is lost.
		err := s.attempt()
		switch {
		case errors.Is(err, nfnetlink.ErrNoAnswer):
			unknown = err
		case !errors.Is(err, unix.ERESTART):
			return err
		}
	}
}

func (s *setEditing) attempt() error {
	generation, err := s.socket.Generation()
	if err != nil {
		return withoutSubsystem(err)
	}
	family, err := s.family()
	if err != nil {
		return err
	}
	if err := s.edit.Validate(family); err != nil {
		return err
	}
	removed, added, err := s.changes()
	if err != nil || len(removed)+len(added) == 0 {
		return err
	}
	t := newTransaction(s.owner).onGeneration(generation)
	t.part = part{at: "set " + string(s.set), needs: networkSets}
	t.changeElements(unix.NFT_MSG_DELSETELEM, 0, s.name(), 0, removed)
	t.changeElements(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, s.name(), 0, added)
	return t.commit(s.socket)
}

func (s *setEditing) name() string { return lower.SetName(s.set, 0) }

// family returns that of the set in the kernel.
func (s *setEditing) family() (interception.Family, error) {
	messages, err := s.socket.Query(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETSET, 0, unix.NFPROTO_INET, func(a *nfnetlink.Attributes) {
		a.Text(unix.NFTA_SET_TABLE, string(s.owner))
		a.Text(unix.NFTA_SET_NAME, s.name())
	})
	switch {
	case errors.Is(err, unix.ENOENT):
		return 0, fmt.Errorf("there is no such set of %s: %w: apply a plan that has it", s.owner, fs.ErrNotExist)
	case err != nil:
		return 0, fmt.Errorf("look for the set: %w", err)
	case len(messages) != 1:
		return 0, fmt.Errorf("look for the set: %w", errMalformed)
	}
	found := decodeSet(messages[0])
	ref, ok := found.planSet()
	if !ok || found.strange != "" || found.flags != liveSetFlags(true) {
		return 0, fmt.Errorf("it is not a live set of addresses: %w: apply a plan in which it is one", fs.ErrNotExist)
	}
	return ref.Family, nil
}

// changes looks each address up, and returns the elements to delete and then to add. An address
// that changes hands is in both.
func (s *setEditing) changes() (removed, added []element, err error) {
	for _, address := range slices.SortedFunc(maps.Keys(s.edit.Remove), netip.Addr.Compare) {
		owner, there, err := s.member(address)
		if err != nil {
			return nil, nil, err
		}
		if there && owner == s.edit.Remove[address] {
			removed = append(removed, element{value: address.AsSlice()})
		}
	}
	for _, address := range slices.SortedFunc(maps.Keys(s.edit.Add), netip.Addr.Compare) {
		owner, there, err := s.member(address)
		if err != nil {
			return nil, nil, err
		}
		if there && owner == s.edit.Add[address] {
			continue
		}
		if there {
			removed = append(removed, element{value: address.AsSlice()})
		}
		added = append(added, element{value: address.AsSlice(), comment: s.edit.Add[address]})
	}
	return removed, added, nil
}

// member asks for one element, which takes the same time however many there are.
func (s *setEditing) member(address netip.Addr) (owner string, there bool, err error) {
	messages, err := s.socket.Query(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETSETELEM, 0, unix.NFPROTO_INET, func(a *nfnetlink.Attributes) {
		a.Text(unix.NFTA_SET_ELEM_LIST_TABLE, string(s.owner))
		a.Text(unix.NFTA_SET_ELEM_LIST_SET, s.name())
		a.Nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func() {
			a.Nest(unix.NFTA_LIST_ELEM, func() {
				a.Nest(unix.NFTA_SET_ELEM_KEY, func() { a.Bytes(unix.NFTA_DATA_VALUE, address.AsSlice()) })
			})
		})
	})
	if errors.Is(err, unix.ENOENT) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("look for member %s: %w", address, err)
	}
	if len(messages) == 0 {
		return "", false, fmt.Errorf("look for member %s: %w", address, nfnetlink.ErrNoAnswer)
	}
	elements, err := elementsOf(messages[0])
	if err != nil || len(elements) != 1 {
		return "", false, fmt.Errorf("look for member %s: %w", address, errMalformed)
	}
	return decodeKernelElement(elements[0]).comment, true, nil
}
