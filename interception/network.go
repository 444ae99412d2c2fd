// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"fmt"
	"net/netip"
)

// RoutingTable is the number of a routing table (ip-route(8)); 0 stands for the main table.
type RoutingTable uint32

// RouteType is what a route does with a packet (ip-route(8), TYPE).
type RouteType uint8

// The types.
const (
	// RouteUnicast sends the packet through the device, to the gateway if there is one.
	RouteUnicast RouteType = iota
	// RouteLocal delivers the packet to the namespace itself, whatever its destination.
	RouteLocal
)

// String returns "unicast" or "local".
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
	// Type is what the route does with packets.
	Type RouteType
	// Destination is the destination prefix. It also determines the route's family.
	Destination netip.Prefix
	// Device is the interface that the packets leave through; lo for RouteLocal.
	Device Interface
	// Gateway is the next hop, or the zero Addr.
	Gateway netip.Addr
	// Table is the routing table.
	Table RoutingTable
	// Why is the constant reason for the route.
	Why string
	// From is the route's provenance.
	From []Source
}

// PolicyRule is an object of a plan: it makes some packets use a routing table (ip-rule(8)). The
// packets are those that meet all of Source, Destination, In and Mark; at least one of the four
// must be set.
type PolicyRule struct {
	// ID is unique in the plan.
	ID RuleID
	// Family is the packets' family. It must be set.
	Family Family
	// Source is the prefix that the packets come from; the zero Prefix stands for all sources. A
	// packet whose socket has not chosen its source yet comes from no prefix.
	Source netip.Prefix
	// Destination is the prefix that the packets go to; the zero Prefix stands for all destinations.
	Destination netip.Prefix
	// In is the link that the packets arrive by, which need not exist yet; "" stands for all links.
	// What the sockets of the namespace send counts as arriving by lo.
	In Interface
	// Mark is the mark of the packets; the zero MarkBits stand for all marks.
	Mark MarkBits
	// Table is the routing table to use.
	Table RoutingTable
	// Priority orders the rules of a namespace, lowest number first. It must be set: the kernel's
	// choice would depend on the rules that other programs added before.
	Priority uint32
	// Why is the constant reason for the policy rule.
	Why string
	// From is the rule's provenance.
	From []Source
}

// Address is an object of a plan: an address of an interface.
type Address struct {
	// ID is unique in the plan.
	ID RuleID `json:"id"`
	// Device is the interface that has the address.
	Device Interface `json:"device"`
	// Prefix is the address with the length of its subnet. Its host bits are kept.
	Prefix netip.Prefix `json:"prefix"`
	// Why is the constant reason for the address.
	Why string `json:"why"`
	// From is the address's provenance.
	From []Source `json:"from,omitempty"`
}

func (r Route) text() string {
	words := fmt.Sprintf("route %s %s", r.Type, r.Destination)
	if r.Device != "" { // an observed route may have no device
		words += " dev " + string(r.Device)
	}
	if r.Gateway.IsValid() {
		words += " via " + r.Gateway.String()
	}
	return words + tableText(r.Table)
}

func (r PolicyRule) text() string {
	return fmt.Sprintf("policy rule %s priority %d%s%s", r.Family, r.Priority, r.selectors(), tableText(r.Table))
}

// selectors returns the conditions of the rule, such as " from 10.0.0.0/8 in eth0 mark 0x1".
func (r PolicyRule) selectors() string {
	words := ""
	if r.Source.IsValid() {
		words += " from " + r.Source.String()
	}
	if r.Destination.IsValid() {
		words += " to " + r.Destination.String()
	}
	if r.In != "" {
		words += " in " + string(r.In)
	}
	if !r.Mark.IsEmpty() {
		words += " mark " + r.Mark.String()
	}
	return words
}

func (a Address) text() string { return fmt.Sprintf("address %s dev %s", a.Prefix, a.Device) }

func tableText(t RoutingTable) string {
	if t == 0 {
		return " table main"
	}
	return fmt.Sprintf(" table %d", t)
}

// Sysctl is an object of a plan: a kernel parameter of the network namespace
// (Documentation/networking/ip-sysctl.rst).
type Sysctl struct {
	// ID is unique in the plan.
	ID RuleID `json:"id"`
	// Key is the parameter's path below /proc/sys/net, with '/' between its parts because interface
	// names contain dots, such as "ipv4/conf/all/route_localnet".
	Key string `json:"key"`
	// Value is the value to write.
	Value int `json:"value"`
	// Why is the constant reason for the value.
	Why string `json:"why"`
	// From is the value's provenance.
	From []Source `json:"from,omitempty"`
}

func (s Sysctl) text() string { return fmt.Sprintf("sysctl %s = %d", s.Key, s.Value) }
