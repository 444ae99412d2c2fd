// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// SetEdit is a change of the members of a live set of single addresses ([Set].Addresses). A
// dataplane that holds such sets has, beside the methods of [Dataplane],
//
//	UpdateSet(ctx context.Context, ns *Netns, owner Owner, set SetName, edit SetEdit) error
//
// which makes the whole change in one step or none of it. Packets never meet a part of it, and
// edits by several goroutines or processes at once have the effect of some order of theirs. An edit
// takes the same time however many members the set has; in iptables only one of a single address
// does. Its error wraps [fs.ErrNotExist] if the namespace holds no such set of the owner: apply a
// plan with the set first.
//
// Each member has an owner, a text that means something to the caller only, such as a pod's UID: 1
// to 128 printable ASCII characters other than quotes and backslashes. [State].Owners has them.
// The zero value changes nothing.
type SetEdit struct {
	// Remove are addresses with the owner that each must have; "" is a member without an owner, which
	// another program has added. An address that another owner has stays, as it has changed hands: a
	// late edit removes no member of another owner. An address that is not a member is no error.
	Remove map[netip.Addr]string
	// Add are addresses with their owners. An address that another owner has changes hands.
	Add map[netip.Addr]string
}

// maxMemberOwner is the length of comments that nft reads (NFTNL_UDATA_COMMENT_MAXLEN).
const maxMemberOwner = 128

// Validate returns an error for each address that is not plain or not of the family, for each owner
// that is not as [SetEdit] says, and for an address that is both removed and added.
func (e SetEdit) Validate(f Family) error {
	var errs []error
	for address := range e.Remove {
		if _, both := e.Add[address]; both {
			errs = append(errs, fmt.Errorf("%s is both removed and added: adding it is enough, also where another owner has it", address))
		}
	}
	for address, owner := range e.Remove {
		errs = append(errs, memberAddressError(address, f))
		if owner != "" {
			errs = append(errs, memberOwnerError(address, owner))
		}
	}
	for address, owner := range e.Add {
		errs = append(errs, memberAddressError(address, f), memberOwnerError(address, owner))
	}
	return errors.Join(errs...)
}

func memberAddressError(a netip.Addr, f Family) error {
	if err := plainAddrError("the member", a); err != nil {
		return err
	}
	if FamilyOf(a) != f {
		return fmt.Errorf("the member %s is not of the set's family, %s", a, f)
	}
	return nil
}

func memberOwnerError(a netip.Addr, owner string) error {
	special := func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }
	if owner == "" || len(owner) > maxMemberOwner || strings.ContainsFunc(owner, special) {
		return fmt.Errorf("the owner %q of member %s should have 1 to %d printable ASCII characters other than quotes and backslashes",
			owner, a, maxMemberOwner)
	}
	return nil
}
