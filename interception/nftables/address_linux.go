// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
)

// direction selects one of a packet's two addresses.
type direction uint8

const (
	source direction = iota
	destination
)

// offset is where the address is in the network header (RFC 791, section 3.1; RFC 8200, section 3).
func (d direction) offset(family interception.Family) uint32 {
	first, length := uint32(12), uint32(4)
	if family == interception.IPv6 {
		first, length = 8, 16
	}
	return first + uint32(d)*length
}

func (w *ruleWriter) addressSet(family interception.Family, d direction, c interception.Condition[interception.SetRef]) {
	if !c.Present() {
		return
	}
	w.checkFamily(family)
	set := w.t.added[c.Set().Name]
	w.add(address(family, d))
	if all := int(8 * addressKey(family).length); set.bits != 0 && set.bits != all {
		w.add(bitwise(net.CIDRMask(set.bits, all), make([]byte, all/8)))
	}
	w.add(lookup(set.name, set.id, c.Negated()))
}

// addresses tests an address by literal prefixes.
func (w *ruleWriter) addresses(family interception.Family, d direction, c interception.Condition[interception.PrefixSet]) {
	if !c.Present() {
		return
	}
	w.checkFamily(family)
	intervals := lower.Intervals(c.Set())
	if prefix, ok := intervals[0].Prefix(); ok && len(intervals) == 1 && !prefix.IsSingleIP() {
		w.prefix(family, d, prefix, c.Negated())
		return
	}
	w.test(addressKey(family), c.Negated(), addressSpans(intervals), address(family, d))
}

// prefix tests the leading bits of an address, by loading only the leading bytes where possible.
func (w *ruleWriter) prefix(family interception.Family, d direction, p netip.Prefix, negated bool) {
	bytes := p.Addr().AsSlice()
	if whole := p.Bits() / 8; p.Bits()%8 == 0 && whole > 0 {
		w.add(payload(unix.NFT_PAYLOAD_NETWORK_HEADER, d.offset(family), uint32(whole)))
		w.add(compare(equality(negated), bytes[:whole]))
		return
	}
	w.add(address(family, d), bitwise(net.CIDRMask(p.Bits(), 8*len(bytes)), make([]byte, len(bytes))))
	w.add(compare(equality(negated), bytes))
}

func address(family interception.Family, d direction) expression {
	return payload(unix.NFT_PAYLOAD_NETWORK_HEADER, d.offset(family), addressKey(family).length)
}

// numbersOf returns the numbers in ranges in network order.
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

// prefixesOf returns the addresses in ranges. A value that is not an address is left out, as no
// field of that length is looked up in it.
func prefixesOf(spans []span) interception.PrefixSet {
	var prefixes []netip.Prefix
	for _, s := range spans {
		first, ok := netip.AddrFromSlice(s.first)
		last, ok2 := netip.AddrFromSlice(s.last)
		if ok && ok2 && first.BitLen() == last.BitLen() && first.Compare(last) <= 0 {
			prefixes = append(prefixes, lower.Interval{First: first, Last: last}.Prefixes()...)
		}
	}
	return interception.Prefixes(prefixes...)
}
