// SPDX-License-Identifier: Apache-2.0

package lower

import (
	"math/bits"
	"net/netip"
	"strconv"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// Interval is the closed range of addresses from First to Last, both of one family.
type Interval struct {
	First, Last netip.Addr
}

// Intervals returns the members of a set as the fewest intervals, in ascending order. It merges
// adjacent prefixes: otherwise nf_tables would store two intervals, one ending where the other
// begins.
func Intervals(set interception.PrefixSet) []Interval {
	intervals := make([]Interval, 0, set.Len())
	for prefix := range set.All() {
		next := Interval{prefix.Addr(), LastAddress(prefix)}
		if last := len(intervals) - 1; last >= 0 && intervals[last].Last.Next() == next.First {
			intervals[last].Last = next.Last
			continue
		}
		intervals = append(intervals, next)
	}
	return intervals
}

// Prefix returns the interval as a prefix, and whether there is one.
func (i Interval) Prefix() (netip.Prefix, bool) {
	prefix := netip.PrefixFrom(i.First, CommonBits(i.First, i.Last))
	return prefix, prefix.Masked() == prefix && LastAddress(prefix) == i.Last
}

// Prefixes returns the fewest prefixes that have exactly the interval's addresses, in ascending
// order; none for an interval that is empty, because First is above Last.
func (i Interval) Prefixes() []netip.Prefix {
	if i.Last.Less(i.First) {
		return nil
	}
	if prefix, ok := i.Prefix(); ok {
		return []netip.Prefix{prefix}
	}
	middle := LastAddress(netip.PrefixFrom(i.First, CommonBits(i.First, i.Last)+1))
	return append(Interval{i.First, middle}.Prefixes(), Interval{middle.Next(), i.Last}.Prefixes()...)
}

// String returns the interval in nft's syntax: "10.0.0.1", "10.0.0.0/8" or
// "10.0.0.0-11.127.255.255".
func (i Interval) String() string {
	if i.First == i.Last {
		return i.First.String()
	}
	if prefix, ok := i.Prefix(); ok {
		return prefix.String()
	}
	return i.First.String() + "-" + i.Last.String()
}

// CommonBits returns the number of leading bits that two addresses of one family share.
func CommonBits(a, b netip.Addr) int {
	bytes := b.AsSlice()
	for i, x := range a.AsSlice() {
		if x != bytes[i] {
			return 8*i + bits.LeadingZeros8(x^bytes[i])
		}
	}
	return a.BitLen()
}

// LastAddress returns the highest address of a prefix.
func LastAddress(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for i := range bytes {
		host := min(max(8*(i+1)-p.Bits(), 0), 8) // bits of this byte after the prefix
		bytes[i] |= byte(1<<host - 1)
	}
	last, _ := netip.AddrFromSlice(bytes)
	return last
}

// minNetworks is the number of members from which on networks are worth a mask in each rule.
const minNetworks = 64

// Networks returns the members of a set as networks of one length, in ascending order, and that
// length in bits. nf_tables finds an address among them with a mask and one lookup in a hash table.
// Adding them takes a quarter of the time of adding [Intervals], each of which needs two elements
// in a tree.
//
// It returns none for a live set, for fewer than 64 members, and where different lengths would make
// more than two networks per member. The set then uses intervals.
func Networks(s interception.Set) (networks []netip.Addr, bits int) {
	if s.Live || s.Members.Len() < minNetworks {
		return nil, 0
	}
	for prefix := range s.Members.All() {
		bits = max(bits, prefix.Bits())
	}
	count, most := 0, 2*s.Members.Len()
	for prefix := range s.Members.All() {
		if longer := bits - prefix.Bits(); longer < strconv.IntSize-2 {
			count += 1 << longer
		} else {
			count = most + 1
		}
		if count > most {
			return nil, 0
		}
	}
	networks = make([]netip.Addr, 0, count)
	for prefix := range s.Members.All() {
		network := prefix.Addr()
		for range 1<<(bits-prefix.Bits()) - 1 {
			networks = append(networks, network)
			network = LastAddress(netip.PrefixFrom(network, bits)).Next()
		}
		networks = append(networks, network)
	}
	return networks, bits
}

// SetName returns the name in nf_tables of a set of networks, or of intervals if bits is 0.
func SetName(name interception.SetName, bits int) string {
	if bits == 0 {
		return setPrefix + string(name)
	}
	return setPrefix + string(name) + "/" + strconv.Itoa(bits)
}

const setPrefix = "set-"

// ParseSetName parses a name from [SetName]. ok is false for any other name.
func ParseSetName(kernel string) (name interception.SetName, bits int, ok bool) {
	text, ok := strings.CutPrefix(kernel, setPrefix)
	text, length, _ := strings.Cut(text, "/")
	name = interception.SetName(text)
	bits, _ = strconv.Atoi(length)
	return name, bits, ok && bits >= 0 && name.Validate() == nil && SetName(name, bits) == kernel
}
