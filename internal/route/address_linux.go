// SPDX-License-Identifier: Apache-2.0

package route

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"

	mdlayher "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
)

// protocolAttribute is IFA_PROTO (linux/if_addr.h).
const protocolAttribute = 11

// address is an address of an interface.
type address struct {
	index    uint32 // of the interface
	prefix   netip.Prefix
	protocol uint8
}

func (s *Socket) listAddresses() (list []address, err error) {
	err = s.each(unix.RTM_GETADDR, make([]byte, unix.SizeofIfAddrmsg), func(_, header []byte, d *mdlayher.AttributeDecoder) {
		a := address{index: binary.NativeEndian.Uint32(header[4:])}
		var local, own []byte
		for d.Next() {
			switch d.Type() {
			case unix.IFA_LOCAL:
				local = d.Bytes()
			case unix.IFA_ADDRESS:
				own = d.Bytes()
			case protocolAttribute:
				a.protocol = d.Uint8()
			}
		}
		if local != nil { // then IFA_ADDRESS is the far end's
			own = local
		}
		if addr, ok := netip.AddrFromSlice(own); ok {
			a.prefix = netip.PrefixFrom(addr, int(header[1]))
			list = append(list, a)
		}
	})
	return list, err
}

// addAddress adds an address of the owner, with its protocol, which the library does not support.
// It skips duplicate address detection, so that an IPv6 address is usable at once.
func (c *Change) addAddress(a AddressRecord) error {
	index, err := c.device(a.Device)
	if err != nil {
		return err
	}
	header := []byte{unix.AF_INET, byte(a.Prefix.Bits()), 0, 0}
	if a.Prefix.Addr().Is6() {
		header[0], header[2] = unix.AF_INET6, unix.IFA_F_NODAD
	}
	e := mdlayher.NewAttributeEncoder()
	e.Bytes(unix.IFA_LOCAL, a.Prefix.Addr().AsSlice())
	e.Bytes(unix.IFA_ADDRESS, a.Prefix.Addr().AsSlice())
	if c.owner.Protocol != 0 {
		e.Uint8(protocolAttribute, c.owner.Protocol)
	}
	attributes, err := e.Encode()
	if err != nil {
		return fmt.Errorf("encode address %s: %w", a.Prefix, err)
	}
	body := append(binary.NativeEndian.AppendUint32(header, index), attributes...)
	return c.socket.send(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, body)
}

func (c *Change) deleteAddress(a AddressRecord) error {
	index, err := c.device(a.Device)
	if err == nil {
		address := &netlink.Addr{IPNet: network(a.Prefix), LinkIndex: int(index)}
		err = c.socket.namespace.Change(fmt.Sprintf("delete address %s from %s", a.Prefix, a.Device), func() error {
			return netlink.AddrDel(nil, address)
		})
	}
	return gone(err)
}

// network converts a prefix to the library's type.
func network(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// address prepares an address of the plan. An address that exists already keeps its owner.
func (c *Change) address(a interception.Address) {
	entry := AddressRecord{a.Device, a.Prefix}
	i := slices.IndexFunc(c.found.addresses, func(b address) bool {
		return b.prefix == a.Prefix && c.found.deviceName(b.index) == a.Device
	})
	if i >= 0 {
		switch {
		case slices.Contains(c.before.Addresses, entry):
			c.left.Addresses = append(c.left.Addresses, entry)
		case c.found.addresses[i].protocol != c.owner.Protocol:
			c.left.Found = append(c.left.Found, entry)
		}
		return
	}
	if !c.socket.labels {
		c.left.Addresses = append(c.left.Addresses, entry)
	}
	c.steps = append(c.steps, step{
		at: a.ID, why: a.Why,
		do:   func() error { return c.addAddress(entry) },
		undo: func() error { return c.deleteAddress(entry) },
	})
}

// staleAddresses adds a step for each address of the owner that the plan does not have.
func (c *Change) staleAddresses(p *interception.Plan) {
	addresses := slices.Collect(interception.ObjectsOf[interception.Address](p))
	for _, a := range c.found.addresses {
		entry := AddressRecord{c.found.deviceName(a.index), a.prefix}
		owned := a.protocol == c.owner.Protocol || slices.Contains(c.before.Addresses, entry)
		wanted := slices.ContainsFunc(addresses, func(b interception.Address) bool { return entry == AddressRecord{b.Device, b.Prefix} })
		if owned && !wanted {
			c.stale = append(c.stale, step{do: func() error { return c.deleteAddress(entry) }})
		}
	}
}
