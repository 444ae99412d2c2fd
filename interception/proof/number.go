// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

// number is a group of variables that hold a number, the highest bit first.
type number struct {
	first int32
	bits  int
	step  int32 // from one bit to the next
}

// level returns the variable of a bit; bit 0 is the highest.
func (n number) level(bit int) int32 { return n.first + int32(bit)*n.step }

// fixed returns where the number has the value in the bits of the mask.
func (d *diagram) fixed(n number, value, mask uint32) ref {
	f := always
	for i := n.bits - 1; i >= 0; i-- {
		bit := uint32(1) << (n.bits - 1 - i)
		switch {
		case mask&bit == 0:
		case value&bit != 0:
			f = d.node(n.level(i), never, f)
		default:
			f = d.node(n.level(i), f, never)
		}
	}
	return f
}

// equals returns where the number has the value.
func (d *diagram) equals(n number, value uint32) ref { return d.fixed(n, value, ^uint32(0)) }

// inRanges returns the packets whose number is in one of the ranges, which ascend and are disjoint.
// It builds the diagram directly, without an operation for each range.
func inRanges[T ~uint16 | ~uint32](d *diagram, n number, ranges []interception.Range[T]) ref {
	return rangesBelow(d, n, 0, 0, ranges)
}

// rangesBelow is inRanges for the numbers whose first depth bits are those of base.
func rangesBelow[T ~uint16 | ~uint32](d *diagram, n number, depth int, base uint64, ranges []interception.Range[T]) ref {
	last := base + 1<<(n.bits-depth) - 1
	for len(ranges) > 0 && uint64(ranges[0].Last) < base {
		ranges = ranges[1:]
	}
	switch {
	case len(ranges) == 0 || uint64(ranges[0].First) > last:
		return never
	case uint64(ranges[0].First) <= base && uint64(ranges[0].Last) >= last:
		return always
	}
	low := rangesBelow(d, n, depth+1, base, ranges)
	high := rangesBelow(d, n, depth+1, base+1<<(n.bits-depth-1), ranges)
	return d.node(n.level(depth), low, high)
}

// prefixesBelow returns the packets whose number, the bits of an address from depth on, is in one
// of the prefixes, which are of one family, sorted and disjoint. It does not test the family.
func (d *diagram) prefixesBelow(n number, depth int, prefixes []netip.Prefix) ref {
	if len(prefixes) == 0 {
		return never
	}
	if prefixes[0].Bits() <= depth {
		return always
	}
	split := 0
	for split < len(prefixes) && !bitOf(prefixes[split].Addr(), depth) {
		split++
	}
	low, high := d.prefixesBelow(n, depth+1, prefixes[:split]), d.prefixesBelow(n, depth+1, prefixes[split:])
	return d.node(n.level(depth), low, high)
}

// bitOf returns a bit of an address; bit 0 is the highest.
func bitOf(addr netip.Addr, i int) bool {
	bytes := addr.As16() // which has those of IPv4 at its end
	i += 128 - addr.BitLen()
	return bytes[i/8]>>(7-i%8)&1 == 1
}
