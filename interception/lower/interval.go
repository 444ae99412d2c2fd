// SPDX-License-Identifier: Apache-2.0

package lower

import (
	"math/bits"
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

// Interval is the closed range of the addresses from First to Last, which are of one family.
type Interval struct {
	First, Last netip.Addr
}

// Intervals are the members of a set as the fewest intervals, in ascending order. Adjacent prefixes become one: nf_tables would
// store two intervals of which one ends where the other begins.
func Intervals(set interception.PrefixSet) []Interval {
	intervals := make([]Interval, 0, set.Len())
	for prefix := range set.All() {
		next := Interval{prefix.Addr(), lastAddress(prefix)}
		if last := len(intervals) - 1; last >= 0 && intervals[last].Last.Next() == next.First {
			intervals[last].Last = next.Last
			continue
		}
		intervals = append(intervals, next)
	}
	return intervals
}

// Prefix is the interval as one prefix, when it is one.
func (i Interval) Prefix() (netip.Prefix, bool) {
	prefix := netip.PrefixFrom(i.First, commonBits(i.First, i.Last))
	return prefix, prefix.Masked() == prefix && lastAddress(prefix) == i.Last
}

// String is the interval as nft writes it: "10.0.0.1", "10.0.0.0/8" or "10.0.0.0-11.127.255.255".
func (i Interval) String() string {
	if i.First == i.Last {
		return i.First.String()
	}
	if prefix, ok := i.Prefix(); ok {
		return prefix.String()
	}
	return i.First.String() + "-" + i.Last.String()
}

// commonBits is the number of leading bits in which two addresses of one family agree.
func commonBits(a, b netip.Addr) int {
	bytes := b.AsSlice()
	for i, x := range a.AsSlice() {
		if x != bytes[i] {
			return 8*i + bits.LeadingZeros8(x^bytes[i])
		}
	}
	return a.BitLen()
}

// lastAddress is the highest address of a prefix.
func lastAddress(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for i := range bytes {
		host := min(max(8*(i+1)-p.Bits(), 0), 8) // bits of this byte that are behind the prefix
		bytes[i] |= byte(1<<host - 1)
	}
	last, _ := netip.AddrFromSlice(bytes)
	return last
}
