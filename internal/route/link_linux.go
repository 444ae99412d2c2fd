// SPDX-License-Identifier: Apache-2.0

package route

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"

	mdlayher "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
)

// withoutCounters is RTEXT_FILTER_SKIP_STATS (linux/rtnetlink.h). Kernels that do not know the flag
// ignore it.
const withoutCounters = 1 << 3

// requestForLinks asks the kernel to leave out counters: those of IPv6, which are a quarter of its
// answer and of which it sums most over all CPUs, and in newer kernels also the link's own.
func requestForLinks() ([]byte, error) {
	e := mdlayher.NewAttributeEncoder()
	e.Uint32(unix.IFLA_EXT_MASK, withoutCounters)
	mask, err := e.Encode()
	if err != nil {
		return nil, fmt.Errorf("encode a request for links: %w", err)
	}
	return append(make([]byte, unix.SizeofIfInfomsg), mask...), nil
}

func (s *Socket) listLinks() ([]netlink.Link, error) {
	request, err := requestForLinks()
	if err != nil {
		return nil, err
	}
	messages, err := s.list(unix.RTM_GETLINK, request)
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

func isUp(l netlink.Link) bool { return l.Attrs().Flags&net.FlagUp != 0 }
