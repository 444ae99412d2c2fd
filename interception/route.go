// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"errors"
	"fmt"
	"net/netip"
)

// RouteType is what a route does with a packet (ip-route(8), TYPE).
type RouteType uint8

// The types.
const (
	// RouteUnicast sends the packet through the device, to the gateway if there is one.
	RouteUnicast RouteType = iota
	// RouteLocal delivers the packet to the namespace itself, whatever its destination.
	RouteLocal
	// RouteUnreachable discards the packet and informs its sender: a socket of the namespace gets
	// EHOSTUNREACH.
	RouteUnreachable
	// RouteBlackhole discards the packet without a word: a socket of the namespace gets EINVAL.
	RouteBlackhole
	// RouteThrow ends the lookup in its table, as if the table had no route to the destination. The
	// next policy rule decides.
	RouteThrow
)

// String returns "unicast", "local", "unreachable", "blackhole" or "throw".
func (t RouteType) String() string {
	return nameOrNumber(t, "route type", []string{"unicast", "local", "unreachable", "blackhole", "throw"})
}

func routeTypes() []RouteType {
	return []RouteType{RouteUnicast, RouteLocal, RouteUnreachable, RouteBlackhole, RouteThrow}
}

// Route is an object of a plan: an entry of a routing table.
type Route struct {
	// ID is unique in the plan.
	ID RuleID
	// Type is what the route does with packets.
	Type RouteType
	// Destination is the destination prefix. It also determines the route's family.
	Destination netip.Prefix
	// Device is the interface that the packets leave through; lo for RouteLocal, and "" for the
	// types that send nothing.
	Device Interface
	// Gateway is the next hop, or the zero Addr.
	Gateway netip.Addr
	// OnLink makes the kernel take the gateway for a neighbour on Device, whatever the other routes
	// say. It requires a gateway.
	OnLink bool
	// Source is the source address of packets whose socket has not chosen one: an address of the
	// namespace. The zero Addr leaves the choice to the kernel. Only RouteUnicast takes it.
	Source netip.Addr
	// Metric orders the routes of a table to the same destination: the lowest one applies. 0 leaves
	// it to the kernel, which takes 0 for IPv4 and 1024 for IPv6. In the main table, other programs'
	// routes to the destination are in the way of a route without a metric; with one, only those of
	// the same metric are.
	Metric uint32
	// Table is the routing table.
	Table RoutingTable
	// Why is the constant reason for the route.
	Why string
	// From is the route's provenance.
	From []Source
}

// metric6 is the kernel's metric of an IPv6 route without one (linux/ipv6_route.h,
// IP6_RT_PRIO_USER).
const metric6 = 1024

// EffectiveMetric returns the metric that the route has in the kernel.
func (r Route) EffectiveMetric() uint32 {
	if r.Metric == 0 && FamilyOf(r.Destination.Addr()) == IPv6 {
		return metric6
	}
	return r.Metric
}

func (r Route) text() string {
	words := fmt.Sprintf("route %s %s", r.Type, r.Destination)
	if r.Device != "" { // an observed route may have no device
		words += " dev " + string(r.Device)
	}
	if r.Gateway.IsValid() {
		words += " via " + r.Gateway.String()
	}
	if r.OnLink {
		words += " onlink"
	}
	if r.Source.IsValid() {
		words += " src " + r.Source.String()
	}
	if without := (Route{Destination: r.Destination}); r.EffectiveMetric() != without.EffectiveMetric() {
		words += fmt.Sprintf(" metric %d", r.Metric)
	}
	return words + tableText(r.Table)
}

func routeError(r Route) error {
	errs := []error{plainPrefixError(r.Destination), r.nextHopError(), r.sourceError()}
	if r.Destination.IsValid() && r.Destination != r.Destination.Masked() {
		errs = append(errs, fmt.Errorf("destination %s has bits beyond its length: write %s", r.Destination, r.Destination.Masked()))
	}
	if int(r.Type) >= len(routeTypes()) {
		errs = append(errs, fmt.Errorf("route type %d is unknown", uint8(r.Type)))
	}
	return errors.Join(errs...)
}

// nextHopError checks the device and the gateway.
func (r Route) nextHopError() error {
	if r.Type != RouteUnicast && r.Type != RouteLocal {
		if r.Device != "" || r.Gateway.IsValid() || r.OnLink {
			return fmt.Errorf("a route of type %s sends nothing: leave out its device and its gateway", r.Type)
		}
		return nil
	}
	errs := []error{r.Device.Validate(), plainAddrError("the gateway", r.Gateway)}
	if r.Gateway.IsValid() && (r.Type != RouteUnicast || FamilyOf(r.Gateway) != FamilyOf(r.Destination.Addr())) {
		errs = append(errs, errors.New("a gateway goes with a unicast route of its own family"))
	}
	if r.OnLink && !r.Gateway.IsValid() {
		errs = append(errs, errors.New("onlink is about a gateway: name one"))
	}
	return errors.Join(errs...)
}

func (r Route) sourceError() error {
	switch {
	case !r.Source.IsValid():
		return nil
	case r.Type != RouteUnicast || FamilyOf(r.Source) != FamilyOf(r.Destination.Addr()):
		return errors.New("a preferred source goes with a unicast route of its own family")
	case r.Source.IsUnspecified() || r.Source.IsMulticast():
		return fmt.Errorf("the preferred source %s is no unicast address", r.Source)
	default:
		return plainAddrError("the preferred source", r.Source)
	}
}
