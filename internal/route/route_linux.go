// SPDX-License-Identifier: Apache-2.0

package route

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
)

// route is an entry of a routing table, as far as plans have it.
type route struct {
	kind        uint8
	destination netip.Prefix
	index       uint32 // of the interface
	gateway     netip.Addr
	table       uint32
	protocol    uint8
}

func (s *Socket) listRoutes() ([]route, error) {
	messages, err := s.list(unix.RTM_GETROUTE, make([]byte, unix.SizeofRtMsg))
	if err != nil {
		return nil, err
	}
	var routes []route
	for _, m := range messages {
		header, d, err := decode(m, unix.SizeofRtMsg)
		if err != nil {
			return nil, err
		}
		ip := header[0] == unix.AF_INET || header[0] == unix.AF_INET6
		if !ip || binary.NativeEndian.Uint32(header[8:])&unix.RTM_F_CLONED != 0 {
			continue
		}
		r, err := decodeRoute(header, d)
		if err != nil {
			return nil, err
		}
		routes = append(routes, r)
	}
	return routes, nil
}

func decodeRoute(header []byte, d *netlink.AttributeDecoder) (route, error) {
	r := route{table: uint32(header[4]), protocol: header[5], kind: header[7]}
	destination := netip.IPv4Unspecified()
	if header[0] == unix.AF_INET6 {
		destination = netip.IPv6Unspecified()
	}
	for d.Next() {
		switch d.Type() {
		case unix.RTA_DST:
			destination, _ = netip.AddrFromSlice(d.Bytes())
		case unix.RTA_OIF:
			r.index = d.Uint32()
		case unix.RTA_GATEWAY:
			r.gateway, _ = netip.AddrFromSlice(d.Bytes())
		case unix.RTA_TABLE:
			r.table = d.Uint32()
		}
	}
	r.destination = netip.PrefixFrom(destination, int(header[1]))
	return r, d.Err()
}

// changeRoute adds, replaces or deletes a route.
func (s *Socket) changeRoute(kind, flags uint16, r route) error {
	addr := r.destination.Addr()
	header := make([]byte, unix.SizeofRtMsg)
	header[0], header[1] = addressFamily(interception.FamilyOf(addr)), byte(r.destination.Bits())
	header[5], header[6], header[7] = r.protocol, r.scope(), r.kind
	if kind == unix.RTM_DELROUTE {
		header[6] = unix.RT_SCOPE_NOWHERE // of any scope
	}
	return s.do(message{
		kind: kind, flags: flags, header: header,
		attributes: func(e *netlink.AttributeEncoder) {
			e.Bytes(unix.RTA_DST, addr.AsSlice())
			e.Uint32(unix.RTA_OIF, r.index)
			e.Uint32(unix.RTA_TABLE, r.table)
			if r.gateway.IsValid() {
				e.Bytes(unix.RTA_GATEWAY, r.gateway.AsSlice())
			}
		},
	})
}

// scope is what ip(8) gives a route.
func (r route) scope() uint8 {
	switch {
	case r.kind == unix.RTN_LOCAL:
		return unix.RT_SCOPE_HOST
	case r.gateway.IsValid():
		return unix.RT_SCOPE_UNIVERSE
	default:
		return unix.RT_SCOPE_LINK
	}
}

// wantedRoute is a route of the plan, without its interface, which may be one of the plan.
func (c *Change) wantedRoute(r interception.Route) route {
	kind := uint8(unix.RTN_UNICAST)
	if r.Type == interception.RouteLocal {
		kind = unix.RTN_LOCAL
	}
	return route{kind: kind, destination: r.Destination, gateway: r.Gateway, table: tableNumber(r.Table), protocol: c.owner.Protocol}
}

// route prepares a route of the plan. In the main table only one to the same destination is in its way; a table of the plan's own is to
// hold nobody else's at all.
func (c *Change) route(r interception.Route) error {
	wanted := c.wantedRoute(r)
	flags := uint16(unix.NLM_F_CREATE | unix.NLM_F_EXCL)
	undo := func() error { return c.changeWanted(unix.RTM_DELROUTE, 0, r) }
	for _, have := range c.found.routes {
		if have.table != wanted.table || have.destination.Addr().Is4() != wanted.destination.Addr().Is4() {
			continue
		}
		same := have.destination == wanted.destination
		if have.protocol != c.owner.Protocol {
			if same || !sharedTable(wanted.table) {
				return &interception.ApplyError{At: string(r.ID), Why: r.Why, Err: fmt.Errorf(
					"a route to %s in table %d is there and is not the owner's (protocol %d): %w: choose another table",
					have.destination, have.table, have.protocol, unix.EEXIST)}
			}
			continue
		}
		wanted.index = have.index
		switch {
		case have == wanted && c.found.deviceName(have.index) == r.Device:
			return nil
		case same:
			flags = unix.NLM_F_CREATE | unix.NLM_F_REPLACE
			undo = func() error { return c.socket.changeRoute(unix.RTM_NEWROUTE, flags, have) }
		}
	}
	c.steps = append(c.steps, step{
		at: r.ID, why: r.Why, do: func() error { return c.changeWanted(unix.RTM_NEWROUTE, flags, r) }, undo: undo,
	})
	return nil
}

// changeWanted adds, replaces or deletes a route of the plan.
func (c *Change) changeWanted(kind, flags uint16, r interception.Route) error {
	index, err := c.device(r.Device)
	if err != nil {
		return err
	}
	wanted := c.wantedRoute(r)
	wanted.index = index
	err = c.socket.changeRoute(kind, flags, wanted)
	if kind == unix.RTM_DELROUTE {
		return gone(err)
	}
	return err
}

// sharedTable reports whether others have routes in a table, too: unspecified, compat, default, main and local are the kernel's and the
// administrator's (linux/rtnetlink.h).
func sharedTable(table uint32) bool {
	return table == unix.RT_TABLE_UNSPEC || table >= unix.RT_TABLE_COMPAT && table <= unix.RT_TABLE_LOCAL
}

// staleRoutes are those of the owner to where the plan has none in the same table.
func (c *Change) staleRoutes(p *interception.Plan) {
	for _, have := range c.found.routes {
		wanted := false
		for r := range interception.ObjectsOf[interception.Route](p) {
			wanted = wanted || r.Destination == have.destination && tableNumber(r.Table) == have.table
		}
		if have.protocol == c.owner.Protocol && !wanted {
			c.stale = append(c.stale, step{do: func() error { return gone(c.socket.changeRoute(unix.RTM_DELROUTE, 0, have)) }})
		}
	}
}
