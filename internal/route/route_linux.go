// SPDX-License-Identifier: Apache-2.0

package route

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

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
	metric      uint32
	tos         uint8
	more        extras // what no route of a plan has
}

// foundRoute is a route with the message that the kernel told it by, without its netlink header.
type foundRoute struct {
	route

	raw []byte
}

// sameKey reports whether the kernel puts one route in the place of the other (NLM_F_REPLACE).
func (r route) sameKey(s route) bool {
	return r.destination == s.destination && r.table == s.table && r.metric == s.metric && r.tos == s.tos
}

func (s *Socket) listRoutes() ([]foundRoute, error) {
	messages, err := s.list(unix.RTM_GETROUTE, make([]byte, unix.SizeofRtMsg))
	if err != nil {
		return nil, err
	}
	var routes []foundRoute
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
		routes = append(routes, foundRoute{r, m})
	}
	return routes, nil
}

func decodeRoute(header []byte, d *netlink.AttributeDecoder) (route, error) {
	r := route{table: uint32(header[4]), protocol: header[5], kind: header[7], tos: header[3]}
	destination := netip.IPv4Unspecified()
	if header[0] == unix.AF_INET6 {
		destination = netip.IPv6Unspecified()
	}
	r.more.byte("length of a source", header[2])
	r.more.byte("flags", byte(binary.NativeEndian.Uint32(header[8:])&unix.RTNH_F_ONLINK))
	for d.Next() {
		switch kind := d.Type(); kind {
		case unix.RTA_DST:
			destination, _ = netip.AddrFromSlice(d.Bytes())
		case unix.RTA_OIF:
			r.index = d.Uint32()
		case unix.RTA_GATEWAY:
			r.gateway, _ = netip.AddrFromSlice(d.Bytes())
		case unix.RTA_TABLE:
			r.table = d.Uint32()
		case unix.RTA_PRIORITY:
			r.metric = d.Uint32()
		case unix.RTA_CACHEINFO, unix.RTA_PREF: // its use, and what routers tell
		default:
			r.more.attribute(kind, d.Bytes())
		}
	}
	r.destination = netip.PrefixFrom(destination, int(header[1]))
	return r, d.Err()
}

// defaultMetric is that of a route for which none was given: of IPv6, IP6_RT_PRIO_USER (linux/ipv6_route.h).
func defaultMetric(addr netip.Addr) uint32 {
	if addr.Is4() {
		return 0
	}
	return 1024
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
			e.Uint32(unix.RTA_PRIORITY, r.metric)
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
	return route{
		kind: kind, destination: r.Destination, gateway: r.Gateway, table: tableNumber(r.Table), protocol: c.owner.Protocol,
		metric: defaultMetric(r.Destination.Addr()),
	}
}

// route prepares a route of the plan. In the main table only one to the same destination is in its way; a table of the plan's own is to
// hold nobody else's at all.
func (c *Change) route(r interception.Route) error {
	wanted := c.wantedRoute(r)
	flags := uint16(unix.NLM_F_CREATE | unix.NLM_F_EXCL)
	undo := func() error { return c.changeWanted(unix.RTM_DELROUTE, 0, r) }
	replaced := -1
	for i, have := range c.found.routes {
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
		if c.isRoute(have.route, r) {
			c.keptRoutes = append(c.keptRoutes, i)
			return nil
		}
		if have.sameKey(wanted) && replaced < 0 {
			replaced = i
		}
	}
	if replaced >= 0 {
		have := c.found.routes[replaced]
		c.keptRoutes = append(c.keptRoutes, replaced)
		flags = unix.NLM_F_CREATE | unix.NLM_F_REPLACE
		undo = func() error { return c.socket.repeat(unix.RTM_NEWROUTE, flags, have.raw) }
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

// isRoute reports whether a route that is there is one of the plan.
func (c *Change) isRoute(have route, r interception.Route) bool {
	wanted := c.wantedRoute(r)
	wanted.index = have.index
	return have == wanted && c.found.deviceName(have.index) == r.Device
}

// staleRoutes are those of the owner that are none of the plan's, and not to be replaced by one.
func (c *Change) staleRoutes() {
	for i, have := range c.found.routes {
		if have.protocol == c.owner.Protocol && !slices.Contains(c.keptRoutes, i) {
			c.stale = append(c.stale, step{do: func() error { return gone(c.socket.repeat(unix.RTM_DELROUTE, 0, have.raw)) }})
		}
	}
}
