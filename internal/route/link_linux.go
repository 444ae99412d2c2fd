// SPDX-License-Identifier: Apache-2.0

package route

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
)

// link is an interface as it stands in the namespace.
type link struct {
	index  uint32
	name   interception.Interface
	alias  string
	group  uint32
	up     bool
	kind   string
	geneve interception.Geneve // of kind geneve
}

// The kinds of links that plans have.
const (
	kindDummy  = "dummy"
	kindGeneve = "geneve"
)

// linkHeader is struct ifinfomsg.
func linkHeader(index, flags uint32) []byte {
	b := binary.NativeEndian.AppendUint32(make([]byte, 4), index)
	b = binary.NativeEndian.AppendUint32(b, flags)
	return binary.NativeEndian.AppendUint32(b, flags) // which of the flags to change
}

func (s *Socket) listLinks() ([]link, error) {
	messages, err := s.list(unix.RTM_GETLINK, linkHeader(0, 0))
	if err != nil {
		return nil, err
	}
	var links []link
	for _, m := range messages {
		header, d, err := decode(m, unix.SizeofIfInfomsg)
		if err != nil {
			return nil, err
		}
		l := link{index: binary.NativeEndian.Uint32(header[4:]), up: binary.NativeEndian.Uint32(header[8:])&unix.IFF_UP != 0}
		for d.Next() {
			switch d.Type() {
			case unix.IFLA_IFNAME:
				l.name = interception.Interface(d.String())
			case unix.IFLA_IFALIAS:
				l.alias = d.String()
			case unix.IFLA_GROUP:
				l.group = d.Uint32()
			case unix.IFLA_LINKINFO:
				d.Nested(l.decodeKind)
			}
		}
		if err := d.Err(); err != nil {
			return nil, err
		}
		links = append(links, l)
	}
	return links, nil
}

func (l *link) decodeKind(d *netlink.AttributeDecoder) error {
	for d.Next() {
		switch d.Type() {
		case unix.IFLA_INFO_KIND:
			l.kind = d.String()
		case unix.IFLA_INFO_DATA:
			if l.kind == kindGeneve {
				d.Nested(l.decodeGeneve)
			}
		}
	}
	return nil
}

func (l *link) decodeGeneve(d *netlink.AttributeDecoder) error {
	for d.Next() {
		switch d.Type() {
		case unix.IFLA_GENEVE_ID:
			l.geneve.VNI = d.Uint32()
		case unix.IFLA_GENEVE_REMOTE, unix.IFLA_GENEVE_REMOTE6:
			l.geneve.Remote, _ = netip.AddrFromSlice(d.Bytes())
		case unix.IFLA_GENEVE_PORT:
			if b := d.Bytes(); len(b) == 2 {
				l.geneve.Port = interception.Port(binary.BigEndian.Uint16(b))
			}
		}
	}
	return nil
}

// owns reports whether a link is the owner's: by its alias or, before it has one, by its group.
func (o Owner) owns(l link) bool {
	return l.alias == o.alias() || l.alias == "" && l.group == o.group()
}

// link prepares a link of the plan.
func (c *Change) link(l interception.Link) error {
	for _, have := range c.found.links {
		switch {
		case have.name != l.Name:
			continue
		case !c.owner.owns(have):
			return &interception.ApplyError{At: string(l.ID), Why: l.Why, Err: fmt.Errorf(
				"interface %s is there and is not the owner's: %w: choose another name", l.Name, unix.EEXIST)}
		case !sameLink(have, l):
			return &interception.ApplyError{At: string(l.ID), Why: l.Why, Err: fmt.Errorf(
				"interface %s is there with other parameters, which cannot be changed: %w: remove the plan first", l.Name, unix.EEXIST)}
		}
		c.steps = append(c.steps, step{at: l.ID, why: l.Why, do: func() error { return c.finishLink(have) }})
		return nil
	}
	c.steps = append(c.steps, step{
		at: l.ID, why: l.Why,
		do:   func() error { return c.addLink(l) },
		undo: func() error { return c.deleteLink(l.Name) },
	})
	return nil
}

func (c *Change) addLink(l interception.Link) error {
	kind := kindDummy
	if l.Geneve != nil {
		kind = kindGeneve
	}
	err := c.socket.do(message{
		kind: unix.RTM_NEWLINK, flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, header: linkHeader(0, 0),
		attributes: func(e *netlink.AttributeEncoder) {
			e.String(unix.IFLA_IFNAME, string(l.Name))
			e.Uint32(unix.IFLA_GROUP, c.owner.group())
			e.Nested(unix.IFLA_LINKINFO, func(e *netlink.AttributeEncoder) error {
				e.String(unix.IFLA_INFO_KIND, kind)
				if l.Geneve != nil {
					e.Nested(unix.IFLA_INFO_DATA, func(e *netlink.AttributeEncoder) error { return encodeGeneve(e, *l.Geneve) })
				}
				return nil
			})
		},
	})
	if errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("links of type %s: %w by this kernel: %w", kind, interception.ErrUnsupported, err)
	}
	if err != nil {
		return err
	}
	made, err := c.linkNamed(l.Name)
	if err == nil {
		err = c.finishLink(made)
	}
	if err != nil {
		return errors.Join(err, c.deleteLink(l.Name))
	}
	return nil
}

func encodeGeneve(e *netlink.AttributeEncoder, g interception.Geneve) error {
	remote := uint16(unix.IFLA_GENEVE_REMOTE)
	if g.Remote.Is6() {
		remote = unix.IFLA_GENEVE_REMOTE6
	}
	e.Uint32(unix.IFLA_GENEVE_ID, g.VNI)
	e.Bytes(remote, g.Remote.AsSlice())
	e.Bytes(unix.IFLA_GENEVE_PORT, binary.BigEndian.AppendUint16(nil, uint16(g.Port)))
	return nil
}

// finishLink gives a link of the owner its alias and sets it up.
func (c *Change) finishLink(l link) error {
	return c.socket.do(message{
		kind: unix.RTM_NEWLINK, header: linkHeader(l.index, unix.IFF_UP),
		attributes: func(e *netlink.AttributeEncoder) { e.String(unix.IFLA_IFALIAS, c.owner.alias()) },
	})
}

// staleLinks are those of the owner that the plan does not have.
func (c *Change) staleLinks(p *interception.Plan) {
	for _, have := range c.found.links {
		wanted := false
		for l := range interception.ObjectsOf[interception.Link](p) {
			wanted = wanted || l.Name == have.name
		}
		if c.owner.owns(have) && !wanted {
			c.stale = append(c.stale, step{do: func() error { return c.deleteLink(have.name) }})
		}
	}
}

func (c *Change) deleteLink(name interception.Interface) error {
	l, err := c.linkNamed(name)
	if err == nil {
		err = c.socket.do(message{kind: unix.RTM_DELLINK, header: linkHeader(l.index, 0)})
	}
	return gone(err)
}

// linkNamed is the link of a name: one that was found or, made meanwhile, is one of the plan.
func (c *Change) linkNamed(name interception.Interface) (link, error) {
	links := c.found.links
	for range 2 {
		for _, l := range links {
			if l.name == name {
				return l, nil
			}
		}
		var err error
		if links, err = c.socket.listLinks(); err != nil {
			return link{}, fmt.Errorf("list links: %w", err)
		}
	}
	return link{}, fmt.Errorf("interface %s: %w", name, unix.ENODEV)
}

func sameLink(have link, l interception.Link) bool {
	if l.Geneve == nil {
		return have.kind == kindDummy
	}
	return have.kind == kindGeneve && have.geneve == *l.Geneve
}
