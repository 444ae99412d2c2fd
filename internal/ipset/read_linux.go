// SPDX-License-Identifier: Apache-2.0

package ipset

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/nfnetlink"
)

// Flags of a list; package nl has the rest of the protocol.
const (
	namesOnly  = 1 << 1 // IPSET_FLAG_LIST_SETNAME
	headerOnly = 1 << 2 // IPSET_FLAG_LIST_HEADER
)

// Set is a set in the kernel.
type Set struct {
	Type    Type
	Family  interception.Family
	Members []Member
}

// Names returns the names of the namespace's sets.
func (s *Socket) Names() ([]string, error) {
	messages, err := s.list(func(a *nfnetlink.Attributes) {
		a.Uint32(nl.IPSET_ATTR_FLAGS|unix.NLA_F_NET_BYTEORDER, namesOnly)
	})
	if err != nil {
		return nil, fmt.Errorf("list the ipsets: %w", err)
	}
	var names []string
	for _, m := range messages {
		err := nfnetlink.Decode(m, func(d *netlink.AttributeDecoder) {
			if d.Type() == nl.IPSET_ATTR_SETNAME {
				names = append(names, d.String())
			}
		})
		if err != nil {
			return nil, fmt.Errorf("list the ipsets: %w", err)
		}
	}
	return names, nil
}

// Read returns a set with its members. The error wraps fs.ErrNotExist if there is none.
func (s *Socket) Read(name string) (Set, error) {
	messages, err := s.list(func(a *nfnetlink.Attributes) { a.Text(nl.IPSET_ATTR_SETNAME, name) })
	var set Set
	for _, m := range messages {
		err = errors.Join(err, set.add(m))
	}
	return set, named("read", name, err)
}

// Form returns the type and the family of a set, in the same time for any number of members. The
// error is as that of [Socket.Read].
func (s *Socket) Form(name string) (Type, interception.Family, error) {
	messages, err := s.netfilter.Query(unix.NFNL_SUBSYS_IPSET, nl.IPSET_CMD_HEADER, 0, unix.NFPROTO_IPV4, func(a *nfnetlink.Attributes) {
		a.Bytes(nl.IPSET_ATTR_PROTOCOL, []byte{nl.IPSET_PROTOCOL})
		a.Text(nl.IPSET_ATTR_SETNAME, name)
	})
	err = missing(err)
	var set Set
	for _, m := range messages {
		err = errors.Join(err, set.add(m))
	}
	return set.Type, set.Family, named("look for", name, err)
}

// Header is what the kernel tells of a set without its members. It counts them one by one.
type Header struct {
	Type     Type
	Family   interception.Family
	Comments bool // members may have them
	// Members is their number, and References that of rules which name the set.
	Members, References uint32
}

// Header returns that of a set. The error is as that of [Socket.Read].
func (s *Socket) Header(name string) (Header, error) {
	messages, err := s.list(func(a *nfnetlink.Attributes) {
		a.Text(nl.IPSET_ATTR_SETNAME, name)
		a.Uint32(nl.IPSET_ATTR_FLAGS|unix.NLA_F_NET_BYTEORDER, headerOnly)
	})
	var h Header
	for _, m := range messages {
		var set Set
		err = errors.Join(err, set.add(m), nfnetlink.Decode(m, h.add))
		h.Type, h.Family = set.Type, set.Family
	}
	return h, named("look for", name, err)
}

// add adds what the attributes of the set itself say.
func (h *Header) add(d *netlink.AttributeDecoder) {
	if d.Type() != nl.IPSET_ATTR_DATA {
		return
	}
	d.Nested(func(d *netlink.AttributeDecoder) error {
		for d.Next() {
			switch d.Type() {
			case nl.IPSET_ATTR_CADT_FLAGS:
				h.Comments = d.Uint32()&nl.IPSET_FLAG_WITH_COMMENT != 0
			case nl.IPSET_ATTR_ELEMENTS:
				h.Members = d.Uint32()
			case nl.IPSET_ATTR_REFERENCES:
				h.References = d.Uint32()
			}
		}
		return nil
	})
}

func (s *Socket) list(fill func(*nfnetlink.Attributes)) ([][]byte, error) {
	request := func(a *nfnetlink.Attributes) {
		a.Bytes(nl.IPSET_ATTR_PROTOCOL, []byte{nl.IPSET_PROTOCOL})
		fill(a)
	}
	messages, err := s.netfilter.Query(unix.NFNL_SUBSYS_IPSET, nl.IPSET_CMD_LIST, unix.NLM_F_DUMP, unix.NFPROTO_IPV4, request)
	return messages, missing(err)
}

// add adds what a message of a list says. Each has a part of the members.
func (s *Set) add(message []byte) error {
	var broken error
	err := nfnetlink.Decode(message, func(d *netlink.AttributeDecoder) {
		switch d.Type() {
		case nl.IPSET_ATTR_TYPENAME:
			s.Type = Type(d.String())
		case nl.IPSET_ATTR_FAMILY:
			s.Family = interception.IPv4
			if d.Uint8() == unix.NFPROTO_IPV6 {
				s.Family = interception.IPv6
			}
		case nl.IPSET_ATTR_ADT:
			d.Nested(func(d *netlink.AttributeDecoder) error {
				for d.Next() {
					d.Nested(func(d *netlink.AttributeDecoder) error {
						member, err := decodeMember(d)
						s.Members, broken = append(s.Members, member), errors.Join(broken, err)
						return nil
					})
				}
				return nil
			})
		}
	})
	return errors.Join(err, broken)
}

func decodeMember(d *netlink.AttributeDecoder) (Member, error) {
	var address netip.Addr
	var comment string
	bits := -1
	for d.Next() {
		switch d.Type() {
		case nl.IPSET_ATTR_IP:
			d.Nested(func(d *netlink.AttributeDecoder) error {
				for d.Next() {
					address, _ = netip.AddrFromSlice(d.Bytes()) // one of another length stays invalid
				}
				return nil
			})
		case nl.IPSET_ATTR_CIDR:
			bits = int(d.Uint8())
		case nl.IPSET_ATTR_COMMENT:
			comment = d.String()
		default: // one that may change what the member means, such as an exception to another one
			return Member{}, fmt.Errorf("a member with the attribute %d", d.Type())
		}
	}
	if bits < 0 {
		bits = address.BitLen()
	}
	if prefix := netip.PrefixFrom(address, bits); prefix.IsValid() {
		return Member{prefix, comment}, nil
	}
	return Member{}, errors.New("a member that is no network")
}
