// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
	"github.com/meshcni/meshcni/interception/trace"
)

// What every namespace has (ip-rule(8)), as in package trace.
const (
	loopback     linkName                  = "lo"
	mainTable    interception.RoutingTable = 254
	localTable   interception.RoutingTable = 255
	mainPriority uint32                    = 32766
)

// network is a namespace with everything that its plans add, except rules.
type network struct {
	trace.Namespace
	own     int // the number of links of the namespace's own; the plans' links follow
	routes  []interception.Route
	rules   []interception.PolicyRule
	sysctls map[string]int
}

// newNetwork requires a valid namespace.
func newNetwork(n trace.Namespace) *network {
	s := &network{Namespace: n, own: len(n.Links), sysctls: map[string]int{}}
	s.rules = []interception.PolicyRule{{Table: localTable}, {Table: mainTable, Priority: mainPriority}}
	s.Links = slices.Clone(n.Links)
	for _, plan := range n.Plans {
		for l := range interception.ObjectsOf[interception.Link](plan) {
			if s.link(l.Name) == nil {
				s.Links = append(s.Links, trace.Link{Name: l.Name})
			}
		}
	}
	for _, plan := range n.Plans {
		for a := range interception.ObjectsOf[interception.Address](plan) {
			if l := s.link(a.Device); l != nil && !slices.Contains(l.Addresses, a.Prefix) {
				l.Addresses = append(slices.Clone(l.Addresses), a.Prefix)
			}
		}
		for r := range interception.ObjectsOf[interception.Route](plan) {
			r.Table = numbered(r.Table)
			s.routes = append(s.routes, r)
		}
		for y := range interception.ObjectsOf[interception.Sysctl](plan) {
			s.sysctls[y.Key] = y.Value
		}
		for r := range interception.ObjectsOf[interception.PolicyRule](plan) {
			r.Table = numbered(r.Table)
			s.rules = append(s.rules, r)
		}
	}
	slices.SortStableFunc(s.rules, func(a, b interception.PolicyRule) int { return cmp.Compare(a.Priority, b.Priority) })
	return s
}

// numbered returns the kernel's number of a table.
func numbered(t interception.RoutingTable) interception.RoutingTable {
	if t == 0 {
		return mainTable
	}
	return t
}

// link returns the link with the name; nil if there is none.
func (n *network) link(name linkName) *trace.Link {
	for i := range n.Links {
		if n.Links[i].Name == name {
			return &n.Links[i]
		}
	}
	return nil
}

func (n *network) switchedOn(setting string, link linkName) bool {
	return n.sysctls["ipv4/conf/all/"+setting] != 0 || n.sysctls["ipv4/conf/"+string(link)+"/"+setting] != 0
}

// localPrefixes returns the prefixes that are delivered locally, each with the source address that
// routes prefer for it.
func (n *network) localPrefixes() (local, sources []netip.Prefix) {
	for _, l := range n.Links {
		for _, p := range l.Addresses {
			own := netip.PrefixFrom(p.Addr(), p.Addr().BitLen())
			if l.Name == loopback && p.Addr().Is4() {
				own = p.Masked()
			}
			local, sources = append(local, own), append(sources, primary(l, p))
		}
	}
	return local, sources
}

// primary returns the first address of the link in the same subnet.
func primary(l trace.Link, address netip.Prefix) netip.Prefix {
	i := slices.IndexFunc(l.Addresses, func(p netip.Prefix) bool { return p.Masked() == address.Masked() })
	return l.Addresses[i]
}

// addresses returns the addresses of all links, as prefixes of one address.
func (n *network) addresses() interception.PrefixSet {
	var all []netip.Prefix
	for _, l := range n.Links {
		for _, p := range l.Addresses {
			all = append(all, netip.PrefixFrom(p.Addr(), p.Addr().BitLen()))
		}
	}
	return interception.Prefixes(all...)
}

// local returns all addresses that are delivered within the namespace.
func (n *network) local() interception.PrefixSet {
	local, _ := n.localPrefixes()
	return interception.Prefixes(local...)
}

// broadcasts returns the addresses to which no connection is possible.
func (n *network) broadcasts() interception.PrefixSet {
	all := []netip.Prefix{netip.MustParsePrefix("255.255.255.255/32")}
	for _, l := range n.Links {
		for _, p := range l.Addresses {
			if !p.Addr().Is4() || p.Bits() >= 31 {
				continue
			}
			all = append(all, netip.PrefixFrom(lower.LastAddress(p), 32))
		}
	}
	return interception.Prefixes(all...)
}

// custom reports whether there are IPv4 policy rules or local routes other than the kernel's.
func (n *network) custom() bool {
	return slices.ContainsFunc(n.rules, func(r interception.PolicyRule) bool { return r.Family == interception.IPv4 }) ||
		slices.ContainsFunc(n.routes, func(r interception.Route) bool {
			return r.Type == interception.RouteLocal && r.Destination.Addr().Is4()
		})
}

// asksSource reports whether a policy rule asks for packets' sources.
func (n *network) asksSource() bool {
	return slices.ContainsFunc(n.rules, func(r interception.PolicyRule) bool { return r.Source.IsValid() })
}
