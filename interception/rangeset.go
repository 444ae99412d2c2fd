// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Range is the closed interval from First to Last. First must not be above Last.
type Range[T ~uint16 | ~uint32] struct {
	First, Last T
}

// String is "80" for one number and "80-90" for several.
func (r Range[T]) String() string {
	if r.First == r.Last {
		return strconv.FormatUint(uint64(r.First), 10)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// RangeSet is an immutable set of numbers, kept as ascending, disjoint and non-adjacent ranges, so that equal sets have
// equal ranges. The zero value is the empty set.
//
// Its instances are [PortSet], [UIDSet] and [GIDSet]: distinct types, so that a group does not compile where a user belongs.
type RangeSet[T ~uint16 | ~uint32] struct {
	ranges []Range[T]
}

// RangesOf is the set of every number of the given ranges. One whose First is above its Last has none.
func RangesOf[T ~uint16 | ~uint32](ranges ...Range[T]) RangeSet[T] {
	sorted := slices.DeleteFunc(slices.Clone(ranges), func(r Range[T]) bool { return r.First > r.Last })
	slices.SortFunc(sorted, func(a, b Range[T]) int { return cmp.Compare(a.First, b.First) })
	var merged []Range[T]
	for _, r := range sorted {
		last := len(merged) - 1
		// The second test joins neighbours; it cannot overflow because First is above merged[last].Last there.
		if last >= 0 && (r.First <= merged[last].Last || r.First-1 == merged[last].Last) {
			merged[last].Last = max(merged[last].Last, r.Last)
			continue
		}
		merged = append(merged, r)
	}
	return RangeSet[T]{merged}
}

// numbers makes the set of single numbers.
func numbers[T ~uint16 | ~uint32](values []T) RangeSet[T] {
	ranges := make([]Range[T], len(values))
	for i, v := range values {
		ranges[i] = Range[T]{v, v}
	}
	return RangesOf(ranges...)
}

// IsEmpty reports whether the set has no member.
func (s RangeSet[T]) IsEmpty() bool { return len(s.ranges) == 0 }

// IsAll reports whether the set holds every number of its type.
func (s RangeSet[T]) IsAll() bool {
	return len(s.ranges) == 1 && s.ranges[0].First == 0 && s.ranges[0].Last == ^T(0)
}

// Contains reports whether v is a member.
func (s RangeSet[T]) Contains(v T) bool {
	i, found := slices.BinarySearchFunc(s.ranges, v, func(r Range[T], v T) int { return cmp.Compare(r.First, v) })
	return found || i > 0 && v <= s.ranges[i-1].Last
}

// Ranges returns the members as ascending, disjoint, non-adjacent ranges. The slice is the caller's.
func (s RangeSet[T]) Ranges() []Range[T] { return slices.Clone(s.ranges) }

// Union returns the set of the numbers that are in s, in t, or in both.
func (s RangeSet[T]) Union(t RangeSet[T]) RangeSet[T] {
	return RangesOf(slices.Concat(s.ranges, t.ranges)...)
}

// Equal reports whether both sets have the same members.
func (s RangeSet[T]) Equal(t RangeSet[T]) bool { return slices.Equal(s.ranges, t.ranges) }

// String lists the ranges, separated by commas: "80,443,8000-8080"; "*" is the set of all, "" the empty set.
func (s RangeSet[T]) String() string {
	if s.IsAll() {
		return "*"
	}
	words := make([]string, len(s.ranges))
	for i, r := range s.ranges {
		words[i] = r.String()
	}
	return strings.Join(words, ",")
}
