// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"fmt"
	"net/netip"
)

// RoutingTable is the number of a routing table (ip-route(8)); 0 stands for the main table.
type RoutingTable uint32

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
