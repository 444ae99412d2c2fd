// SPDX-License-Identifier: Apache-2.0

package ipset

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/nfnetlink"
)

// Socket changes and reads the ipsets of one network namespace. It is for one goroutine at a time.
type Socket struct{ netfilter *nfnetlink.Socket }

// Dial opens a socket in a namespace.
func Dial(in kernel.Namespace) (*Socket, error) {
	s, err := nfnetlink.Dial(in)
	if err != nil {
		return nil, missing(err)
	}
	return &Socket{s}, nil
}

// Close closes the socket.
func (s *Socket) Close() error { return s.netfilter.Close() }

// Type is what the members of a set are.
type Type string

// The types that live sets of plans have, with the kernel's names.
const (
	OfAddresses Type = "hash:ip"
	OfNetworks  Type = "hash:net"
)

// MaxName is the length that a set's name may have, less the terminating zero.
const MaxName = nl.IPSET_MAXNAMELEN - 1

// maxMembers is the most members that a set takes. The kernel's default, 65,536, is less than the
// pods that a large node may see come and go; what is not used takes no memory.
const maxMembers = 1 << 20

// The kernel's own error numbers.
const (
	errNoSuchType = unix.Errno(nl.IPSET_ERR_FIND_TYPE)
	errInUse      = unix.Errno(nl.IPSET_ERR_BUSY)
	errAlready    = unix.Errno(nl.IPSET_ERR_EXIST) // a member to add is there, or one to delete is not
	errReferenced = unix.Errno(nl.IPSET_ERR_REFERENCED)
)

// ErrInUse means that rules refer to the set. Those of nf_tables may do so for a moment after they
// have been deleted.
var ErrInUse = errors.New("rules refer to the set")

// Create creates an empty set, whose members may have comments. The error wraps fs.ErrExist if one
// of this name is there, and [interception.ErrUnsupported] if the kernel lacks the type.
func (s *Socket) Create(name string, of Type, family interception.Family) error {
	revision := map[Type]byte{OfAddresses: 2, OfNetworks: 4}[of] // the first ones with comments
	err := s.change(nl.IPSET_CMD_CREATE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, name, func(a *nfnetlink.Attributes) {
		a.Text(nl.IPSET_ATTR_TYPENAME, string(of))
		a.Bytes(nl.IPSET_ATTR_REVISION, []byte{revision})
		a.Bytes(nl.IPSET_ATTR_FAMILY, []byte{familyNumber(family)})
		a.Nest(nl.IPSET_ATTR_DATA, func() {
			a.Uint32(nl.IPSET_ATTR_MAXELEM|unix.NLA_F_NET_BYTEORDER, maxMembers)
			a.Uint32(nl.IPSET_ATTR_CADT_FLAGS|unix.NLA_F_NET_BYTEORDER, nl.IPSET_FLAG_WITH_COMMENT)
		})
	})
	if errors.Is(err, errNoSuchType) {
		return fmt.Errorf("make ipset %s: %w: the kernel has no type %s with comments (module ip_set_hash_ip or ip_set_hash_net)",
			name, interception.ErrUnsupported, of)
	}
	return named("make", name, err)
}

// Destroy removes a set. It is no error if there is none. The error is [ErrInUse] if rules refer to
// it.
func (s *Socket) Destroy(name string) error {
	err := s.change(nl.IPSET_CMD_DESTROY, 0, name, func(*nfnetlink.Attributes) {})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return named("remove", name, err)
}

// Swap exchanges the names of two sets, and with them which one rules refer to, in one step.
func (s *Socket) Swap(one, other string) error {
	return named("exchange", one, s.change(nl.IPSET_CMD_SWAP, 0, one, func(a *nfnetlink.Attributes) { a.Text(nl.IPSET_ATTR_SETNAME2, other) }))
}

// Member is a member of a set. A set of addresses has prefixes of one address.
type Member struct {
	Prefix  netip.Prefix
	Comment string
}

// Add adds members, in several messages if they are many, and replaces the comments of those that
// are there.
func (s *Socket) Add(name string, members ...Member) error {
	return named("add to", name, s.alter(nl.IPSET_CMD_ADD, name, members))
}

// Delete deletes a member. It is no error if there is no such member.
func (s *Socket) Delete(name string, member Member) error {
	return named("delete from", name, s.alter(nl.IPSET_CMD_DEL, name, []Member{member}))
}

// perMessage bounds the members in one message: an attribute has 64 KiB at most.
const perMessage = 200

func (s *Socket) alter(command uint8, name string, members []Member) error {
	for some := range slices.Chunk(members, perMessage) {
		err := s.change(command, 0, name, func(a *nfnetlink.Attributes) {
			a.Uint32(nl.IPSET_ATTR_LINENO|unix.NLA_F_NET_BYTEORDER, 0)
			a.Nest(nl.IPSET_ATTR_ADT, func() {
				for _, m := range some {
					a.Nest(nl.IPSET_ATTR_DATA, func() { m.encode(a) })
				}
			})
		})
		if err != nil && !errors.Is(err, errAlready) {
			return err
		}
	}
	return nil
}

func (m Member) encode(a *nfnetlink.Attributes) {
	kind := uint16(nl.IPSET_ATTR_IPADDR_IPV4)
	if m.Prefix.Addr().Is6() {
		kind = nl.IPSET_ATTR_IPADDR_IPV6
	}
	a.Nest(nl.IPSET_ATTR_IP, func() { a.Bytes(kind|unix.NLA_F_NET_BYTEORDER, m.Prefix.Addr().AsSlice()) })
	if !m.Prefix.IsSingleIP() {
		a.Bytes(nl.IPSET_ATTR_CIDR, []byte{byte(m.Prefix.Bits())})
	}
	if m.Comment != "" {
		a.Text(nl.IPSET_ATTR_COMMENT, m.Comment)
	}
}

func (s *Socket) change(command uint8, flags uint16, name string, fill func(*nfnetlink.Attributes)) error {
	_, err := s.netfilter.Query(unix.NFNL_SUBSYS_IPSET, command, flags, familyNumber(interception.IPv4), func(a *nfnetlink.Attributes) {
		a.Bytes(nl.IPSET_ATTR_PROTOCOL, []byte{nl.IPSET_PROTOCOL})
		a.Text(nl.IPSET_ATTR_SETNAME, name)
		fill(a)
	})
	return missing(err)
}

// named says which set an error is about.
func named(step, set string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errInUse), errors.Is(err, errReferenced):
		return fmt.Errorf("%s ipset %s: %w", step, set, ErrInUse)
	default:
		return fmt.Errorf("%s ipset %s: %w", step, set, err)
	}
}

// missing recognises a kernel without ipsets.
func missing(err error) error {
	if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("ipsets (module ip_set, CONFIG_IP_SET): %w: %w", interception.ErrUnsupported, err)
	}
	return err
}

func familyNumber(f interception.Family) byte {
	if f == interception.IPv6 {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}
