// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// The routing tables that every namespace has, and the priorities of the rules that lead to them
// (ip-rule(8)).
const (
	mainTable    interception.RoutingTable = 254
	localTable   interception.RoutingTable = 255
	mainPriority uint32                    = 32766
)

// network is a namespace with everything that its plans add.
type network struct {
	Namespace
	// given is the number of links of the namespace's own; the plans' links follow them.
	given   int
	routes  []interception.Route
	rules   []interception.PolicyRule
	sysctls map[string]int
}

// withPlans returns the namespace with its plans, which are valid.
func (n Namespace) withPlans() (*network, error) {
	s := &network{Namespace: n, given: len(n.Links), sysctls: map[string]int{}}
	s.rules = []interception.PolicyRule{{Table: localTable}, {Table: mainTable, Priority: mainPriority}}
	s.Links = slices.Clone(n.Links)
	for _, plan := range n.Plans {
		for link := range interception.ObjectsOf[interception.Link](plan) {
			if _, there := s.link(link.Name); !there {
				s.Links = append(s.Links, Link{Name: link.Name})
			}
		}
	}
	for _, plan := range n.Plans {
		for _, object := range plan.Objects {
			if err := s.add(object); err != nil {
				return nil, fmt.Errorf("plan of %s: %w", plan.Owner, err)
			}
		}
	}
	// The kernel evaluates rules of equal priority in the order in which they were added.
	slices.SortStableFunc(s.rules, func(a, b interception.PolicyRule) int { return cmp.Compare(a.Priority, b.Priority) })
	return s, nil
}

func (n *network) add(object interception.Object) error {
	switch o := object.(type) {
	case interception.Address:
		link, ok := n.link(o.Device)
		if !ok {
			return fmt.Errorf("address %s (%s): the namespace has no link %s", o.Prefix, o.ID, o.Device)
		}
		if !slices.Contains(link.Addresses, o.Prefix) {
			link.Addresses = append(slices.Clone(link.Addresses), o.Prefix)
		}
	case interception.Route:
		if _, ok := n.link(o.Device); !ok {
			return fmt.Errorf("route to %s (%s): the namespace has no link %s", o.Destination, o.ID, o.Device)
		}
		if o.Table == 0 {
			o.Table = mainTable
		}
		n.routes = append(n.routes, o)
	case interception.PolicyRule:
		if o.Table == 0 {
			o.Table = mainTable
		}
		n.rules = append(n.rules, o)
	case interception.Sysctl:
		n.sysctls[o.Key] = o.Value
	default: // links are added already; tables and sets are read where they are needed
	}
	return nil
}

// switchedOn reports whether an IPv4 setting is on for all links or for the given one
// (Documentation/networking/ip-sysctl.rst).
func (n *network) switchedOn(setting string, link interception.Interface) bool {
	return n.sysctls["ipv4/conf/all/"+setting] != 0 || n.sysctls["ipv4/conf/"+string(link)+"/"+setting] != 0
}
