// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"fmt"
	"net/netip"
)

// RoutingTable is the number of a routing table (ip-route(8)). The zero value stands for the main table.
type RoutingTable uint32

// RouteType is what a route does with a packet (ip-route(8), TYPE).
type RouteType uint8

// The types.
const (
	// RouteUnicast sends the packet by the device, to the gateway when there is one.
	RouteUnicast RouteType = iota
	// RouteLocal delivers the packet to the namespace itself, whatever its destination.
	RouteLocal
)

// String is "unicast" or "local".
func (t RouteType) String() string {
	if t == RouteLocal {
		return "local"
	}
	return "unicast"
}

// Route is an object of a plan: an entry of a routing table.
type Route struct {
	// ID is unique in the plan.
	ID RuleID
	// Type is what the route does.
	Type RouteType
	// Destination is where the route leads, and gives its family.
	Destination netip.Prefix
	// Device is the interface the packets leave by; for RouteLocal, lo.
	Device Interface
	// Gateway is the next hop; the zero Addr for none.
	Gateway netip.Addr
	// Table is the routing table.
	Table RoutingTable
	// Why is the constant reason.
	Why string
	// From is the provenance.
	From []Source
}

// PolicyRule is an object of a plan: it sends packets with a mark to a routing table (ip-rule(8)).
type PolicyRule struct {
	// ID is unique in the plan.
	ID RuleID
	// Family is the packets' family; there must be one.
	Family Family
	// Mark is what the packets carry.
	Mark MarkBits
	// Table is the routing table that is asked.
	Table RoutingTable
	// Priority orders the rules of a namespace, the lowest number first. It must be there: what the kernel would choose depends on
	// who else was first.
	Priority uint32
	// Why is the constant reason.
	Why string
	// From is the provenance.
	From []Source
}

// Address is an object of a plan: an address of an interface.
type Address struct {
	// ID is unique in the plan.
	ID RuleID
	// Device is the interface.
	Device Interface
	// Prefix is the address with the length of its subnet; its other bits are kept.
	Prefix netip.Prefix
	// Why is the constant reason.
	Why string
	// From is the provenance.
	From []Source
}

func (r Route) text() string {
	words := fmt.Sprintf("route %s %s", r.Type, r.Destination)
	if r.Device != "" { // an observed one may have none
		words += " dev " + string(r.Device)
	}
	if r.Gateway.IsValid() {
		words += " via " + r.Gateway.String()
	}
	return words + tableText(r.Table)
}

func (r PolicyRule) text() string {
	return fmt.Sprintf("policy rule %s priority %d mark %s%s", r.Family, r.Priority, r.Mark, tableText(r.Table))
}

func (a Address) text() string { return fmt.Sprintf("address %s dev %s", a.Prefix, a.Device) }

func tableText(t RoutingTable) string {
	if t == 0 {
		return " table main"
	}
	return fmt.Sprintf(" table %d", t)
}
