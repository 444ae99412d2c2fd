// SPDX-License-Identifier: Apache-2.0

package route

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	mdlayher "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
)

// route is an entry of a routing table, as far as plans describe it.
type route struct {
	kind        uint8
	destination netip.Prefix
	index       uint32 // of the interface
	gateway     netip.Addr
	onLink      bool
	source      netip.Addr // preferred
	table       uint32
	protocol    uint8
	metric      uint32
	tos         uint8
	more        extras // what no route of a plan has
}

// foundRoute is a route with the kernel's message about it, without the netlink header.
type foundRoute struct {
	route

	raw []byte
}

// sameKey reports whether the kernel replaces one route by the other (NLM_F_REPLACE).
func (r route) sameKey(s route) bool {
	return r.destination == s.destination && r.table == s.table && r.metric == s.metric && r.tos == s.tos
}

func (s *Socket) listRoutes() (routes []foundRoute, err error) {
	err = s.each(unix.RTM_GETROUTE, make([]byte, unix.SizeofRtMsg), func(message, header []byte, d *mdlayher.AttributeDecoder) {
		ip := header[0] == unix.AF_INET || header[0] == unix.AF_INET6
		if ip && binary.NativeEndian.Uint32(header[8:])&unix.RTM_F_CLONED == 0 {
			routes = append(routes, foundRoute{decodeRoute(header, d), message})
		}
	})
	return routes, err
}

func decodeRoute(header []byte, d *mdlayher.AttributeDecoder) route {
	r := route{table: uint32(header[4]), protocol: header[5], kind: header[7], tos: header[3]}
	destination := netip.IPv4Unspecified()
	if header[0] == unix.AF_INET6 {
		destination = netip.IPv6Unspecified()
	}
	r.more.byte("length of a source", header[2])
	r.onLink = binary.NativeEndian.Uint32(header[8:])&unix.RTNH_F_ONLINK != 0
	for d.Next() {
		switch kind := d.Type(); kind {
		case unix.RTA_DST:
			destination, _ = netip.AddrFromSlice(d.Bytes())
		case unix.RTA_OIF:
			r.index = d.Uint32()
		case unix.RTA_GATEWAY:
			r.gateway, _ = netip.AddrFromSlice(d.Bytes())
		case unix.RTA_PREFSRC:
			r.source, _ = netip.AddrFromSlice(d.Bytes())
		case unix.RTA_TABLE:
			r.table = d.Uint32()
		case unix.RTA_PRIORITY:
			r.metric = d.Uint32()
		case unix.RTA_CACHEINFO, unix.RTA_PREF: // its use, and what routers announce
		default:
			r.more.attribute(kind, d.Bytes())
		}
	}
	r.destination = netip.PrefixFrom(destination, int(header[1]))
	if r.sendsNothing() {
		r.index = 0 // for IPv6, the kernel says lo
	}
	return r
}

// sendsNothing reports whether the route discards packets, or leaves them to other tables.
func (r route) sendsNothing() bool {
	return r.kind == unix.RTN_UNREACHABLE || r.kind == unix.RTN_BLACKHOLE || r.kind == unix.RTN_THROW
}

// object converts a route to the library's type.
func (r route) object() *netlink.Route {
	object := &netlink.Route{
		Type: int(r.kind), Scope: r.scope(), Dst: network(r.destination), LinkIndex: int(r.index), Gw: r.gateway.AsSlice(),
		Src: r.source.AsSlice(), Table: int(r.table), Protocol: netlink.RouteProtocol(r.protocol), Priority: int(r.metric),
	}
	if r.onLink {
		object.SetFlag(netlink.FLAG_ONLINK)
	}
	return object
}

// scope returns the scope that ip(8) gives a route.
func (r route) scope() netlink.Scope {
	switch {
	case r.kind == unix.RTN_LOCAL:
		return netlink.SCOPE_HOST
	case r.gateway.IsValid() || r.sendsNothing():
		return netlink.SCOPE_UNIVERSE
	default:
		return netlink.SCOPE_LINK
	}
}

// wantedRoute returns a route of the plan without its interface, which may not exist yet.
func (c *Change) wantedRoute(r interception.Route) route {
	return route{
		kind: routeKinds()[r.Type], destination: r.Destination, gateway: r.Gateway, onLink: r.OnLink, source: r.Source,
		table: cmp.Or(uint32(r.Table), unix.RT_TABLE_MAIN), protocol: c.owner.Protocol, metric: r.EffectiveMetric(),
	}
}

// routeKinds returns the kernel's number for each type.
func routeKinds() [5]uint8 {
	return [...]uint8{
		interception.RouteUnicast: unix.RTN_UNICAST, interception.RouteLocal: unix.RTN_LOCAL,
		interception.RouteUnreachable: unix.RTN_UNREACHABLE, interception.RouteBlackhole: unix.RTN_BLACKHOLE,
		interception.RouteThrow: unix.RTN_THROW,
	}
}

// route prepares a route of the plan, unless the owner or another program has it.
func (c *Change) route(r interception.Route) error {
	wanted := c.wantedRoute(r)
	add, undo := netlink.RouteAdd, func() error { return c.deleteRoute(r) }
	replaced := -1
	for i, have := range c.found.routes {
		switch {
		case have.protocol != c.owner.Protocol:
		case c.isRoute(have.route, r):
			c.keptRoutes = append(c.keptRoutes, i)
			return nil
		case have.sameKey(wanted) && replaced < 0:
			replaced = i
		}
	}
	if serves, err := c.foreignRoute(r); err != nil || serves {
		return err
	}
	if replaced >= 0 {
		have := c.found.routes[replaced]
		c.keptRoutes = append(c.keptRoutes, replaced)
		add = netlink.RouteReplace
		undo = func() error {
			return c.socket.send(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, have.raw)
		}
	}
	c.steps = append(c.steps, step{at: r.ID, why: r.Why, do: func() error { return c.changeRoute("add", r, add) }, undo: undo})
	return nil
}

// foreignRoute reports whether a route of another program is the same as one of the plan: it serves
// the plan, and keeps its owner. In the main table only another route to the same destination is in
// the plan's way, and for a route with a metric only one of the same metric; a table of the plan's
// own must not have other programs' routes that the plan lacks.
func (c *Change) foreignRoute(r interception.Route) (serves bool, err error) {
	wanted := c.wantedRoute(r)
	for _, have := range c.found.routes {
		if have.protocol == c.owner.Protocol || have.table != wanted.table || have.destination.Addr().Is4() != wanted.destination.Addr().Is4() {
			continue
		}
		switch {
		case c.isRoute(have.route, r):
			serves = true
		case c.planHasRoute(have.route):
		case have.destination == wanted.destination && (r.Metric == 0 || have.metric == wanted.metric) || !sharedTable(wanted.table):
			return false, &interception.ApplyError{At: string(r.ID), Why: r.Why, Err: fmt.Errorf(
				"a route to %s in table %d is there and is not the owner's (protocol %d): %w: choose another table",
				have.destination, have.table, have.protocol, unix.EEXIST)}
		}
	}
	if serves {
		c.left.FoundObjects = append(c.left.FoundObjects, textOf(r))
	}
	return serves, nil
}

// deleteRoute deletes a route of the plan, whatever its scope.
func (c *Change) deleteRoute(r interception.Route) error {
	return gone(c.changeRoute("delete", r, func(object *netlink.Route) error {
		object.Scope = netlink.SCOPE_NOWHERE
		return netlink.RouteDel(object)
	}))
}

// changeRoute adds or deletes a route of the plan by a function of the library.
func (c *Change) changeRoute(verb string, r interception.Route, change func(*netlink.Route) error) error {
	wanted := c.wantedRoute(r)
	if r.Device != "" {
		var err error
		if wanted.index, err = c.device(r.Device); err != nil {
			return err
		}
	}
	return c.socket.namespace.Change(fmt.Sprintf("%s route %s", verb, r.Destination), func() error { return change(wanted.object()) })
}

// sharedTable reports whether other programs use a table, too: unspecified, compat, default, main
// and local are the kernel's and the administrator's (linux/rtnetlink.h).
func sharedTable(table uint32) bool {
	return table == unix.RT_TABLE_UNSPEC || table >= unix.RT_TABLE_COMPAT && table <= unix.RT_TABLE_LOCAL
}

// isRoute reports whether an existing route, of any owner, equals one of the plan.
func (c *Change) isRoute(have route, r interception.Route) bool {
	wanted := c.wantedRoute(r)
	wanted.index, wanted.protocol = have.index, have.protocol
	return have == wanted && c.found.deviceName(have.index) == r.Device
}

func (c *Change) planHasRoute(have route) bool {
	for r := range interception.ObjectsOf[interception.Route](c.plan) {
		if c.isRoute(have, r) {
			return true
		}
	}
	return false
}

// staleRoutes adds a step for each route of the owner that the plan neither has nor replaces.
func (c *Change) staleRoutes() {
	for i, have := range c.found.routes {
		if have.protocol == c.owner.Protocol && !slices.Contains(c.keptRoutes, i) {
			c.stale = append(c.stale, step{do: func() error { return gone(c.socket.send(unix.RTM_DELROUTE, 0, have.raw)) }})
		}
	}
}
