// SPDX-License-Identifier: Apache-2.0

package route

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	mdlayher "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
)

// link prepares a link of the plan.
func (c *Change) link(l interception.Link) error {
	refuse := func(err error) error { return &interception.ApplyError{At: string(l.ID), Why: l.Why, Err: err} }
	i := slices.IndexFunc(c.found.links, func(have netlink.Link) bool { return nameOf(have) == l.Name })
	if i < 0 {
		if err := c.makeable(l); err != nil {
			return refuse(err)
		}
		c.steps = append(c.steps, step{
			at: l.ID, why: l.Why,
			do:   func() error { return c.addLink(l) },
			undo: func() error { return c.deleteLink(l.Name) },
		})
		return nil
	}
	have := c.found.links[i]
	if !c.owner.owns(have) {
		return refuse(fmt.Errorf("interface %s is there and is not the owner's: %w: choose another name", l.Name, unix.EEXIST))
	}
	if fixed := c.found.fixed(have, l); fixed != "" {
		return refuse(fmt.Errorf(
			"interface %s is there, and the kernel cannot change it: %w: %s: give the link another name, or remove the plan first",
			l.Name, unix.EEXIST, fixed))
	}
	for _, change := range c.changes(have, l) {
		change.at, change.why = l.ID, l.Why
		c.steps = append(c.steps, change)
	}
	return nil
}

// makeable returns an error if a link cannot be made because the kernel lacks its kind, or because
// the name of its other end is taken.
func (c *Change) makeable(l interception.Link) error {
	if err := c.socket.hasKind(l); err != nil {
		return err
	}
	if l.Veth == nil {
		return nil
	}
	other, err := c.found.other(l.Veth.Namespace)
	if err == nil && other.link(l.Veth.Peer) != nil {
		err = fmt.Errorf("interface %s is there in the namespace labelled %q: %w: choose another name", l.Veth.Peer, l.Veth.Namespace, unix.EEXIST)
	}
	return err
}

// hasKind asks the kernel for a link of the kind with an address of one byte. No kind accepts that,
// so the kernel makes nothing, but it looks for the kind first.
func (s *Socket) hasKind(l interception.Link) error {
	e := mdlayher.NewAttributeEncoder()
	e.String(unix.IFLA_IFNAME, string(l.Name))
	e.Bytes(unix.IFLA_ADDRESS, []byte{2})
	e.Nested(unix.IFLA_LINKINFO, func(e *mdlayher.AttributeEncoder) error {
		e.String(unix.IFLA_INFO_KIND, kindOf(l))
		return nil
	})
	attributes, err := e.Encode()
	if err != nil {
		return fmt.Errorf("encode link %s: %w", l.Name, err)
	}
	err = s.send(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, append(make([]byte, unix.SizeofIfInfomsg), attributes...))
	if errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("links of type %s: %w by this kernel: %w", kindOf(l), interception.ErrUnsupported, err)
	}
	return nil // another refusal means that the kind exists
}

// kindOf returns the kernel's name for the kind of a link.
func kindOf(l interception.Link) string {
	switch {
	case l.Geneve != nil:
		return "geneve"
	case l.VXLAN != nil:
		return "vxlan"
	case l.Veth != nil:
		return "veth"
	default:
		return "dummy"
	}
}

// newLink returns a link of the plan as it is made: with the owner's group, because the kernel
// takes no alias before the link exists. The namespace of a pair's other end comes later.
func (o Owner) newLink(l interception.Link) netlink.Link {
	attributes := netlink.NewLinkAttrs()
	attributes.Name, attributes.Group, attributes.MTU = string(l.Name), o.group(), l.MTU
	attributes.HardwareAddr = hardwareAddr(l)
	switch {
	case l.Geneve != nil:
		return &netlink.Geneve{LinkAttrs: attributes, ID: l.Geneve.VNI, Remote: l.Geneve.Remote.AsSlice(), Dport: uint16(l.Geneve.Port)}
	case l.VXLAN != nil:
		return &netlink.Vxlan{LinkAttrs: attributes, VxlanId: int(l.VXLAN.VNI), Group: l.VXLAN.Remote.AsSlice(), Port: int(l.VXLAN.Port)}
	case l.Veth != nil:
		pair := netlink.NewVeth(attributes)
		pair.PeerName = string(l.Veth.Peer)
		return pair
	default:
		return &netlink.Dummy{LinkAttrs: attributes}
	}
}

// addLink makes a link of the plan and sets it up, with its other end if it has one.
func (c *Change) addLink(l interception.Link) error {
	made := c.owner.newLink(l)
	err := c.createLink(l, made)
	if err != nil {
		return err
	}
	if err = c.finishLink(made); err == nil && l.Veth != nil {
		err = c.setPeer(l, l.MTU)
	}
	if err != nil {
		return errors.Join(err, c.deleteLink(l.Name))
	}
	return nil
}

func (c *Change) createLink(l interception.Link, made netlink.Link) error {
	create := func() error {
		return c.socket.namespace.Change("add link "+string(l.Name), func() error { return netlink.LinkAdd(made) })
	}
	if pair, is := made.(*netlink.Veth); is {
		other, err := c.found.other(l.Veth.Namespace)
		if err != nil {
			return err
		}
		unlinked := create
		create = func() error {
			return other.open(func(fd int) error {
				pair.PeerNamespace = netlink.NsFd(fd)
				return unlinked()
			})
		}
	}
	err := create()
	if errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("links of type %s: %w by this kernel: %w", made.Type(), interception.ErrUnsupported, err)
	}
	return err
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

// changes returns the steps that make an existing link of the owner equal one of the plan. What the
// kernel cannot change is equal already.
func (c *Change) changes(have netlink.Link, l interception.Link) []step {
	var steps []step
	if have.Attrs().Alias == "" || !isUp(have) {
		steps = append(steps, step{do: func() error { return c.finishLink(have) }})
	}
	if was := have.Attrs().MTU; l.MTU != 0 && l.MTU != was {
		steps = append(steps, c.changeLink(l.Name, "MTU", func() error { return netlink.LinkSetMTU(have, l.MTU) },
			func() error { return netlink.LinkSetMTU(have, was) }))
	}
	if was := have.Attrs().HardwareAddr; l.HardwareAddr != "" && l.HardwareAddr != hardwareAddrOf(have) {
		steps = append(steps, c.changeLink(l.Name, "address", func() error { return netlink.LinkSetHardwareAddr(have, hardwareAddr(l)) },
			func() error { return netlink.LinkSetHardwareAddr(have, was) }))
	}
	if was, _ := c.found.link(have); (l.Geneve != nil || l.VXLAN != nil) && (farEnd(was) != farEnd(l) || learns(have)) {
		change := func(l interception.Link, learns bool) func() error {
			return func() error { return c.socket.changeTunnel(have.Attrs().Index, l, learns) }
		}
		steps = append(steps, step{do: change(l, false), undo: change(was, learns(have))})
	}
	if l.Veth != nil {
		steps = append(steps, c.peerChanges(have, l)...)
	}
	return steps
}

// changeLink returns a step of the library, and its opposite.
func (c *Change) changeLink(name interception.Interface, what string, do, undo func() error) step {
	change := func(do func() error) func() error {
		return func() error { return c.socket.namespace.Change(fmt.Sprintf("set %s of link %s", what, name), do) }
	}
	return step{do: change(do), undo: change(undo)}
}

// learns reports whether a link is a VXLAN tunnel that learns addresses from packets.
func learns(l netlink.Link) bool {
	tunnel, is := l.(*netlink.Vxlan)
	return is && tunnel.Learning
}

// tunnel is the far end of a tunnel of either kind.
type tunnel struct {
	vni    uint32
	remote netip.Addr
	port   interception.Port
}

// farEnd returns the far end of a tunnel; the zero value for other links.
func farEnd(l interception.Link) tunnel {
	switch {
	case l.Geneve != nil:
		return tunnel{l.Geneve.VNI, l.Geneve.Remote, l.Geneve.Port}
	case l.VXLAN != nil:
		return tunnel{l.VXLAN.VNI, l.VXLAN.Remote, l.VXLAN.Port}
	default:
		return tunnel{}
	}
}

// changeTunnel writes the parameters of a tunnel that the kernel can change. The library would send
// others, too, which the kernel refuses in a change.
func (s *Socket) changeTunnel(index int, l interception.Link, learns bool) error {
	e := mdlayher.NewAttributeEncoder()
	e.Nested(unix.IFLA_LINKINFO, func(e *mdlayher.AttributeEncoder) error {
		e.String(unix.IFLA_INFO_KIND, kindOf(l))
		e.Nested(unix.IFLA_INFO_DATA, func(e *mdlayher.AttributeEncoder) error {
			encodeTunnel(e, l, learns)
			return nil
		})
		return nil
	})
	attributes, err := e.Encode()
	if err != nil {
		return fmt.Errorf("encode link %s: %w", l.Name, err)
	}
	header := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(header[4:], uint32(index))
	return s.send(unix.RTM_NEWLINK, 0, append(header, attributes...))
}

func encodeTunnel(e *mdlayher.AttributeEncoder, l interception.Link, learns bool) {
	far := farEnd(l)
	id, remote4, remote6 := uint16(nl.IFLA_GENEVE_ID), uint16(nl.IFLA_GENEVE_REMOTE), uint16(nl.IFLA_GENEVE_REMOTE6)
	if l.VXLAN != nil {
		id, remote4, remote6 = nl.IFLA_VXLAN_ID, nl.IFLA_VXLAN_GROUP, nl.IFLA_VXLAN_GROUP6
		learning := uint8(0)
		if learns {
			learning = 1
		}
		e.Uint8(nl.IFLA_VXLAN_LEARNING, learning)
	}
	e.Uint32(id, far.vni)
	if far.remote.Is4() {
		e.Bytes(remote4, far.remote.AsSlice())
	} else {
		e.Bytes(remote6, far.remote.AsSlice())
	}
}

// hardwareAddr returns the Ethernet address of a valid link; nil if it leaves that to the kernel.
func hardwareAddr(l interception.Link) net.HardwareAddr {
	address, _ := net.ParseMAC(l.HardwareAddr) // it is valid, or empty
	return address
}
