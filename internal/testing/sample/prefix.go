// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

func prefixes(list ...string) interception.PrefixSet {
	parsed := make([]netip.Prefix, len(list))
	for i, prefix := range list {
		parsed[i] = netip.MustParsePrefix(prefix)
	}
	return interception.Prefixes(parsed...)
}

// networks returns prefixes of both families or of one: a few of any length, or about two hundred
// longer ones, sometimes all of one length. More prefixes would make more lines of iptables than an
// ordinary user's programs can send at once (net.core.wmem_default).
func networks(c Choices) interception.PrefixSet {
	if c(6) == 0 {
		return alike(c)
	}
	count, shortest := 1+c(4), 1
	if c(3) == 0 {
		count, shortest = 150+c(100), 20
	}
	list := make([]netip.Prefix, 0, count)
	only := c(4)
	for range count {
		switch v6 := c(2) == 0; {
		case v6 && only != 0:
			list = append(list, network6(c, shortest))
		case !v6 && only != 1:
			list = append(list, network4(c, shortest))
		}
	}
	return interception.Prefixes(list...)
}

// alike returns eighty networks of one length in each family, except for a wider one. A third of
// the addresses around them is within.
func alike(c Choices) interception.PrefixSet {
	bits, list := Pick(c, 24, 28, 32), make([]netip.Prefix, 0, 160)
	for i := range 80 {
		first := byte(3 * i)
		list = append(list,
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, first, byte(c(256))}), bits).Masked(),
			netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 0, first}), 2*bits))
	}
	if c(2) == 0 {
		list[0], list[1] = netip.PrefixFrom(list[0].Addr(), bits-2).Masked(), netip.PrefixFrom(list[1].Addr(), 2*bits-2).Masked()
	}
	return interception.Prefixes(list...)
}

func network4(c Choices, shortest int) netip.Prefix {
	first, second := Pick[byte](c, 10, 10, 127, 172, 192, 198, 203, byte(1+c(223))), Pick[byte](c, 0, 244, 51, byte(c(256)))
	address := [4]byte{first, second, byte(c(256)), byte(c(256))}
	return netip.PrefixFrom(netip.AddrFrom4(address), max(shortest, Pick(c, 1+c(32), 16, 24, 32))).Masked()
}

func network6(c Choices, shortest int) netip.Prefix {
	address := netip.MustParseAddr(Pick(c, "2001:db8::", "fd00:10:244::", "2600:1f00::", "::")).As16()
	if address[0] != 0 {
		address[6], address[7] = byte(c(256)), byte(c(4))
		address[14], address[15] = byte(c(256)), byte(c(256))
	} else {
		address[15] = byte(c(8))
	}
	return netip.PrefixFrom(netip.AddrFrom16(address), max(2*shortest, Pick(c, 1+c(128), 32, 48, 64, 128))).Masked()
}

// resolvers returns some addresses of DNS servers, one of them within the pod.
func resolvers(c Choices) interception.PrefixSet {
	return Pick(c, prefixes("10.96.0.10/32", "fd00:96::a/128"), prefixes("10.96.0.10/32", "10.96.0.11/32"),
		prefixes("127.0.0.53/32", "2001:db8::53/128", "192.0.2.53/32"))
}

// edge returns an address at one end of a prefix, or just beyond; it may be invalid.
func edge(c Choices, of netip.Prefix) netip.Addr {
	last := of.Addr().AsSlice()
	for bit := of.Bits(); bit < len(last)*8; bit++ {
		last[bit/8] |= 0x80 >> (bit % 8)
	}
	end, _ := netip.AddrFromSlice(last)
	return Pick(c, of.Addr(), of.Addr().Prev(), end, end.Next(), of.Addr().Next())
}

// edgeOf returns an edge of one of the prefixes of a family.
func edgeOf(c Choices, set interception.PrefixSet, family interception.Family) netip.Addr {
	list := set.Of(family).Prefixes()
	if len(list) == 0 {
		return netip.Addr{}
	}
	return edge(c, Pick(c, list...))
}
