// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

// numbersOf are the numbers in ranges of them in network order.
func numbersOf[N ~uint16 | ~uint32](spans []span) interception.RangeSet[N] {
	number := func(data []byte) (n N) {
		for _, b := range data {
			n = n<<8 | N(b)
		}
		return n
	}
	ranges := make([]interception.Range[N], len(spans))
	for i, s := range spans {
		ranges[i] = interception.Range[N]{First: number(s.first), Last: number(s.last)}
	}
	return interception.RangesOf(ranges...)
}

// prefixesOf are the addresses in ranges of them. A value that is no address is left out, as no field of that length is looked up in it.
func prefixesOf(spans []span) interception.PrefixSet {
	var prefixes []netip.Prefix
	for _, s := range spans {
		first, ok := netip.AddrFromSlice(s.first)
		last, ok2 := netip.AddrFromSlice(s.last)
		for ok && ok2 && first.Compare(last) <= 0 {
			p := largest(first, last)
			prefixes = append(prefixes, p)
			end, _ := netip.AddrFromSlice(lastOf(p))
			if first = end.Next(); !first.IsValid() {
				break
			}
		}
	}
	return interception.Prefixes(prefixes...)
}

// largest is the largest prefix that begins with first and does not go beyond last.
func largest(first, last netip.Addr) netip.Prefix {
	bits := first.BitLen()
	for bits > 0 {
		wider := netip.PrefixFrom(first, bits-1)
		end, _ := netip.AddrFromSlice(lastOf(wider))
		if wider.Masked().Addr() != first || end.Compare(last) > 0 {
			break
		}
		bits--
	}
	return netip.PrefixFrom(first, bits)
}

// lastOf is the highest address of a prefix.
func lastOf(p netip.Prefix) []byte {
	bytes := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < 8*len(bytes); i++ {
		bytes[i/8] |= 0x80 >> (i % 8)
	}
	return bytes
}
