// SPDX-License-Identifier: Apache-2.0

package route

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
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

func (s *Socket) listAddresses() ([]address, error) {
	messages, err := s.list(unix.RTM_GETADDR, make([]byte, unix.SizeofIfAddrmsg))
	if err != nil {
		return nil, err
	}
	var list []address
	for _, m := range messages {
		header, d, err := decode(m, unix.SizeofIfAddrmsg)
		if err != nil {
			return nil, err
		}
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
		if err := d.Err(); err != nil {
			return nil, err
		}
		if local != nil { // IFA_ADDRESS is the far end's then
			own = local
		}
		if addr, ok := netip.AddrFromSlice(own); ok {
			a.prefix = netip.PrefixFrom(addr, int(header[1]))
			list = append(list, a)
		}
	}
	return list, nil
}

// changeAddress adds or deletes an address. Duplicates of an IPv6 one are not looked for: it is to be of use at once.
func (c *Change) changeAddress(kind, flags uint16, a AddressRecord, protocol uint8) error {
	index, err := c.device(a.Device)
	if err != nil {
		return err
	}
	header := []byte{unix.AF_INET, byte(a.Prefix.Bits()), 0, 0}
	if a.Prefix.Addr().Is6() {
		header[0], header[2] = unix.AF_INET6, unix.IFA_F_NODAD
	}
	return c.socket.do(message{
		kind: kind, flags: flags, header: binary.NativeEndian.AppendUint32(header, index),
		attributes: func(e *netlink.AttributeEncoder) {
			e.Bytes(unix.IFA_LOCAL, a.Prefix.Addr().AsSlice())
			e.Bytes(unix.IFA_ADDRESS, a.Prefix.Addr().AsSlice())
			if protocol != 0 {
				e.Uint8(protocolAttribute, protocol)
			}
		},
	})
}

// address prepares an address of the plan. One that is there already stays whose it is.
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
		do: func() error {
			return c.changeAddress(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, entry, c.owner.Protocol)
		},
		undo: func() error { return c.deleteAddress(entry) },
	})
}

// staleAddresses are those of the owner that the plan does not have.
func (c *Change) staleAddresses(p *interception.Plan) {
	for _, a := range c.found.addresses {
		entry := AddressRecord{c.found.deviceName(a.index), a.prefix}
		owned := a.protocol == c.owner.Protocol || slices.Contains(c.before.Addresses, entry)
		wanted := false
		for b := range interception.ObjectsOf[interception.Address](p) {
			wanted = wanted || entry == AddressRecord{b.Device, b.Prefix}
		}
		if owned && !wanted {
			c.stale = append(c.stale, step{do: func() error { return c.deleteAddress(entry) }})
		}
	}
}

func (c *Change) deleteAddress(a AddressRecord) error {
	return gone(c.changeAddress(unix.RTM_DELADDR, 0, a, 0))
}
