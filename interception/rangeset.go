// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// Range is the closed interval from First to Last. First must not be above Last.
type Range[T ~uint16 | ~uint32] struct {
	First, Last T
}

// String returns "80" for one number and "80-90" for several.
func (r Range[T]) String() string {
	if r.First == r.Last {
		return strconv.FormatUint(uint64(r.First), 10)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// RangeSet is an immutable set of numbers, kept as ascending, disjoint and non-adjacent ranges, so
// that equal sets have equal ranges. The zero value is the empty set.
//
// Its instances are [PortSet], [UIDSet] and [GIDSet]. They are distinct types, so that a group does
// not compile in place of a user.
type RangeSet[T ~uint16 | ~uint32] struct {
	ranges []Range[T]
}

// RangesOf returns all numbers in the ranges. A range whose First is above its Last is empty.
func RangesOf[T ~uint16 | ~uint32](ranges ...Range[T]) RangeSet[T] {
	sorted := slices.DeleteFunc(slices.Clone(ranges), func(r Range[T]) bool { return r.First > r.Last })
	slices.SortFunc(sorted, func(a, b Range[T]) int { return cmp.Compare(a.First, b.First) })
	var merged []Range[T]
	for _, r := range sorted {
		last := len(merged) - 1
		// The second test joins neighbours. It cannot overflow: First is above that Last.
		if last >= 0 && (r.First <= merged[last].Last || r.First-1 == merged[last].Last) {
			merged[last].Last = max(merged[last].Last, r.Last)
			continue
		}
		merged = append(merged, r)
	}
	return RangeSet[T]{merged}
}

// numbers returns the set of single numbers.
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

// Ranges returns ascending, disjoint, non-adjacent ranges. The caller owns the slice.
func (s RangeSet[T]) Ranges() []Range[T] { return slices.Clone(s.ranges) }

// Union returns the set of the numbers that are in s, in t, or in both.
func (s RangeSet[T]) Union(t RangeSet[T]) RangeSet[T] {
	return RangesOf(slices.Concat(s.ranges, t.ranges)...)
}

// Equal reports whether both sets have the same members.
func (s RangeSet[T]) Equal(t RangeSet[T]) bool { return slices.Equal(s.ranges, t.ranges) }

// String returns the ranges, separated by commas, such as "80,443,8000-8080"; "*" for the set of
// all numbers and "" for the empty set.
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

// ParseRangeSet parses a list separated by commas, with blanks around the list and its elements: ""
// is the empty set and "*" the set of all. The function one parses any other element. It is for
// lists whose elements [ParsePortSet] and [ParseGIDSet] do not accept.
func ParseRangeSet[T ~uint16 | ~uint32](list string, one func(element string) (Range[T], error)) (RangeSet[T], error) {
	list = strings.TrimSpace(list)
	switch list {
	case "":
		return RangeSet[T]{}, nil
	case "*":
		return RangesOf(Range[T]{0, ^T(0)}), nil
	}
	ranges, err := parseList(list, func(element string) (Range[T], error) {
		switch element {
		case "":
			return Range[T]{}, errors.New("an element of the list is empty: remove the extra comma")
		case "*":
			return Range[T]{}, errors.New(`"*" stands for all and must be alone: remove the other elements or the "*"`)
		}
		return one(element)
	})
	return RangesOf(ranges...), err
}

// parseList parses elements separated by commas and blanks. It returns nil after an error.
func parseList[T any](list string, one func(element string) (T, error)) ([]T, error) {
	var all []T
	for element := range strings.SplitSeq(list, ",") {
		value, err := one(strings.TrimSpace(element))
		if err != nil {
			return nil, err
		}
		all = append(all, value)
	}
	return all, nil
}

// parseRange parses what [Range.String] returns.
func parseRange[T ~uint16 | ~uint32](text string) (Range[T], error) {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	first, err := parseNumber[T](from)
	if err != nil {
		return Range[T]{}, err
	}
	last, err := parseNumber[T](to)
	if err == nil && first > last {
		err = fmt.Errorf("range %s ends before it begins", text)
	}
	return Range[T]{first, last}, err
}

// parseNumber parses a decimal number without a sign.
func parseNumber[T ~uint16 | ~uint32](text string) (T, error) {
	n, err := strconv.ParseUint(text, 10, bits.Len32(uint32(^T(0))))
	return T(n), err
}

// Port is a TCP or UDP port number.
type Port uint16

// PortSet is a set of ports ([AllPorts], [Ports], [PortRange], [ParsePortSet]), by default empty.
type PortSet = RangeSet[Port]

// AllPorts returns the set of all 65,536 ports, 0 included.
func AllPorts() PortSet { return RangesOf(Range[Port]{0, ^Port(0)}) }

// Ports returns the set of the given ports.
func Ports(ports ...Port) PortSet { return numbers(ports) }

// PortRange returns the ports from first to last, both included; none if first is above last.
func PortRange(first, last Port) PortSet {
	return RangesOf(Range[Port]{first, last})
}

// ParsePortSet parses a list of decimal ports and ranges, separated by commas, such as "80,
// 8000-8999". It parses the text of a PortSet to an equal set. Blanks around the list and its
// elements are ignored. An empty list is the empty set, and "*" alone is [AllPorts]. An empty
// element, a "*" beside other elements, a sign, a range whose first port is above its last, or a
// name is an error that quotes the element.
func ParsePortSet(list string) (PortSet, error) {
	return ParseRangeSet(list, func(element string) (Range[Port], error) {
		ports, err := parseRange[Port](element)
		if err != nil {
			err = fmt.Errorf("%s is neither a port nor a range of ports: write decimal numbers from 0 to 65535, such as 80,8000-8999",
				quoteBriefly(element))
		}
		return ports, err
	})
}

// UID is a numeric user id as the pod's own user namespace sees it. Names are never resolved: the
// node's user database does not apply in a pod.
type UID uint32

// GID is a numeric group id, like [UID].
type GID uint32

// UIDSet is a set of user ids; the zero value is empty.
type UIDSet = RangeSet[UID]

// GIDSet is a set of group ids; the zero value is empty.
type GIDSet = RangeSet[GID]

// UIDs returns the set of the given user ids.
func UIDs(ids ...UID) UIDSet { return numbers(ids) }

// GIDs returns the set of the given group ids.
func GIDs(ids ...GID) GIDSet { return numbers(ids) }

// ParseUIDSet parses a list of decimal user ids and ranges, separated by commas, as [ParsePortSet]
// parses ports; "*" alone is the set of all. A name is an error that explains why it is refused.
func ParseUIDSet(list string) (UIDSet, error) { return ParseRangeSet(list, parseIDs[UID]("user")) }

// ParseGIDSet parses a list of group ids, as [ParseUIDSet] does.
func ParseGIDSet(list string) (GIDSet, error) { return ParseRangeSet(list, parseIDs[GID]("group")) }

func parseIDs[T UID | GID](kind string) func(element string) (Range[T], error) {
	return func(element string) (Range[T], error) {
		ids, err := parseRange[T](element)
		if err != nil {
			err = fmt.Errorf("%s is not a %s id: write numbers, as the node's %[2]s names mean nothing in a pod", quoteBriefly(element), kind)
		}
		return ids, err
	}
}
