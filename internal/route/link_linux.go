// SPDX-License-Identifier: Apache-2.0

package route

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
)

func (s *Socket) listLinks() ([]netlink.Link, error) {
	messages, err := s.list(unix.RTM_GETLINK, make([]byte, unix.SizeofIfInfomsg))
	if err != nil {
		return nil, err
	}
	links := make([]netlink.Link, 0, len(messages))
	for _, m := range messages {
		l, err := decodeLink(m)
		if err != nil {
			return nil, err
		}
		links = append(links, l)
	}
	return links, nil
}

// decodeLink has the library parse a message. If the library cannot parse it, only the link's
// common part is known. The owner of a pod may make links of any kind that the kernel has, and one
// that is in no object's way must not cause an error.
func decodeLink(m []byte) (netlink.Link, error) {
	l, err := decodeWhole(m)
	if err == nil {
		return l, nil
	}
	attributes, broken := decodeCommon(m)
	if broken != nil {
		return nil, fmt.Errorf("%w; its common part: %w", err, broken)
	}
	return &netlink.GenericLink{LinkAttrs: attributes, LinkType: "unreadable"}, nil
}

// decodeWhole has the library parse a message, and recovers from its panics at unexpected sizes.
func decodeWhole(m []byte) (l netlink.Link, err error) {
	defer func() {
		if broken := recover(); broken != nil {
			err = fmt.Errorf("netlink answer: a link that cannot be read: %v", broken)
		}
	}()
	return netlink.LinkDeserialize(nil, m)
}

// decodeCommon parses what identifies a link's owner, and how others refer to the link.
func decodeCommon(m []byte) (netlink.LinkAttrs, error) {
	attributes := netlink.NewLinkAttrs()
	header, d, err := decode(m, unix.SizeofIfInfomsg)
	if err != nil {
		return attributes, err
	}
	attributes.Index = int(int32(binary.NativeEndian.Uint32(header[4:])))
	if binary.NativeEndian.Uint32(header[8:])&unix.IFF_UP != 0 {
		attributes.Flags = net.FlagUp
	}
	for d.Next() {
		switch d.Type() {
		case unix.IFLA_IFNAME:
			attributes.Name = d.String()
		case unix.IFLA_IFALIAS:
			attributes.Alias = d.String()
		case unix.IFLA_GROUP:
			attributes.Group = d.Uint32()
		}
	}
	if err := d.Err(); err != nil {
		return attributes, fmt.Errorf("netlink answer: %w", err)
	}
	if attributes.Name == "" {
		return attributes, errors.New("netlink answer: a link without a name")
	}
	return attributes, nil
}

// owns reports whether a link is the owner's: by its alias or, before it has one, by its group.
func (o Owner) owns(l netlink.Link) bool {
	alias := l.Attrs().Alias
	return alias == o.alias() || alias == "" && l.Attrs().Group == o.group()
}

func (c *Change) link(l interception.Link) error {
	for _, have := range c.found.links {
		switch {
		case nameOf(have) != l.Name:
			continue
		case !c.owner.owns(have):
			return &interception.ApplyError{At: string(l.ID), Why: l.Why, Err: fmt.Errorf(
				"interface %s is there and is not the owner's: %w: choose another name", l.Name, unix.EEXIST)}
		case !sameLink(have, l):
			return &interception.ApplyError{At: string(l.ID), Why: l.Why, Err: fmt.Errorf(
				"interface %s is there with other parameters, which cannot be changed: %w: remove the plan first", l.Name, unix.EEXIST)}
		}
		if have.Attrs().Alias == "" || !isUp(have) {
			c.steps = append(c.steps, step{at: l.ID, why: l.Why, do: func() error { return c.finishLink(have) }})
		}
		return nil
	}
	c.steps = append(c.steps, step{
		at: l.ID, why: l.Why,
		do:   func() error { return c.addLink(c.owner.newLink(l)) },
		undo: func() error { return c.deleteLink(l.Name) },
	})
	return nil
}

// newLink returns a link of the plan as it is made: with the owner's group, because the kernel
// takes no alias before the link exists.
func (o Owner) newLink(l interception.Link) netlink.Link {
	attributes := netlink.NewLinkAttrs()
	attributes.Name, attributes.Group = string(l.Name), o.group()
	if l.Geneve == nil {
		return &netlink.Dummy{LinkAttrs: attributes}
	}
	return &netlink.Geneve{
		LinkAttrs: attributes, ID: l.Geneve.VNI, Remote: l.Geneve.Remote.AsSlice(), Dport: uint16(l.Geneve.Port),
	}
}

func (c *Change) addLink(l netlink.Link) error {
	err := c.socket.namespace.Change("add link "+l.Attrs().Name, func() error { return netlink.LinkAdd(l) })
	if errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("links of type %s: %w by this kernel: %w", l.Type(), interception.ErrUnsupported, err)
	}
	if err != nil {
		return err
	}
	if err := c.finishLink(l); err != nil {
		return errors.Join(err, c.deleteLink(nameOf(l)))
	}
	return nil
}

// finishLink gives a link of the owner its alias and sets it up.
func (c *Change) finishLink(l netlink.Link) error {
	return c.socket.namespace.Change("set link "+l.Attrs().Name, func() error {
		if err := netlink.LinkSetAlias(l, c.owner.alias()); err != nil {
			return err
		}
		return netlink.LinkSetUp(l)
	})
}

// staleLinks adds a step for each link of the owner that the plan does not have.
func (c *Change) staleLinks(p *interception.Plan) {
	links := slices.Collect(interception.ObjectsOf[interception.Link](p))
	for _, have := range c.found.links {
		wanted := slices.ContainsFunc(links, func(l interception.Link) bool { return l.Name == nameOf(have) })
		if c.owner.owns(have) && !wanted {
			c.stale = append(c.stale, step{do: func() error { return c.deleteLink(nameOf(have)) }})
		}
	}
}

func (c *Change) deleteLink(name interception.Interface) error {
	l, err := c.linkNamed(name)
	if err == nil {
		err = c.socket.namespace.Change("delete link "+string(name), func() error { return netlink.LinkDel(l) })
	}
	return gone(err)
}

// linkNamed returns the link of a name: one that was found, or one of the plan made meanwhile.
func (c *Change) linkNamed(name interception.Interface) (netlink.Link, error) {
	links := c.found.links
	for range 2 {
		for _, l := range links {
			if nameOf(l) == name {
				return l, nil
			}
		}
		var err error
		if links, err = c.socket.listLinks(); err != nil {
			return nil, fmt.Errorf("list links: %w", err)
		}
	}
	return nil, fmt.Errorf("interface %s: %w", name, unix.ENODEV)
}

func nameOf(l netlink.Link) interception.Interface { return interception.Interface(l.Attrs().Name) }

func sameLink(have netlink.Link, l interception.Link) bool {
	switch have := have.(type) {
	case *netlink.Dummy:
		return l.Geneve == nil
	case *netlink.Geneve:
		return l.Geneve != nil && geneveOf(have) == *l.Geneve
	}
	return false
}

// geneveOf returns the part of a geneve link that plans have.
func geneveOf(l *netlink.Geneve) interception.Geneve {
	remote, _ := netip.AddrFromSlice(l.Remote)
	return interception.Geneve{VNI: l.ID, Remote: remote, Port: interception.Port(l.Dport)}
}

func isUp(l netlink.Link) bool { return l.Attrs().Flags&net.FlagUp != 0 }
