// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
	"github.com/meshcni/meshcni/interception/trace"
)

// What every namespace has (ip-rule(8)), as in package trace.
const (
	loopback   linkName                  = "lo"
	mainTable  interception.RoutingTable = 254
	localTable interception.RoutingTable = 255
)

// network is a namespace with everything that its plans add, except rules.
type network struct{ *trace.Routing }

// link returns the link with the name; nil if there is none.
func (n *network) link(name linkName) *trace.Link {
	for i := range n.Links {
		if n.Links[i].Name == name {
			return &n.Links[i]
		}
	}
	return nil
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
			local, sources = append(local, own), append(sources, l.Primary(p))
		}
	}
	return local, sources
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

// asksSource reports whether a policy rule asks for packets' sources.
func (n *network) asksSource() bool {
	return slices.ContainsFunc(n.Rules, func(r interception.PolicyRule) bool { return r.Source.IsValid() })
}
