// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

// dnsPort is where resolvers listen (RFC 1035).
const dnsPort interception.Port = 53

// families returns the families that the agent writes rules for.
func families(ipv6 bool) []interception.Family {
	all := []interception.Family{interception.IPv4, interception.IPv6}
	if ipv6 {
		return all
	}
	return all[:1]
}

// id returns the id of a line of one family.
func id(line string, family interception.Family) interception.RuleID {
	return interception.RuleID(line + "." + family.String())
}

// host returns the set of one address.
func host(a netip.Addr) interception.PrefixSet {
	return interception.Prefixes(netip.PrefixFrom(a, a.BitLen()))
}

// loopback returns the loopback address of a family.
func loopback(family interception.Family) interception.PrefixSet {
	if family == interception.IPv6 {
		return host(netip.IPv6Loopback())
	}
	return host(netip.AddrFrom4([4]byte{127, 0, 0, 1}))
}

// everywhere returns the prefix of all addresses of a family.
func everywhere(family interception.Family) netip.Prefix {
	if family == interception.IPv6 {
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
}

// everyUser matches what a socket of any user sends.
func everyUser() interception.Condition[interception.UIDSet] {
	return interception.Not(interception.UIDs(^interception.UID(0)))
}
