// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
)

// PrefixSet is an immutable set of addresses, kept as the smallest list of CIDR prefixes for them:
// masked, sorted (IPv4 first), without nested ones, siblings merged. Equal sets have equal
// prefixes. The zero value is the empty set.
type PrefixSet struct {
	prefixes []netip.Prefix
}

// AllPrefixes returns the set of all addresses of both families.
func AllPrefixes() PrefixSet {
	return PrefixSet{[]netip.Prefix{
		netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0),
	}}
}

// Prefixes returns the set of the addresses in the given prefixes. Bits beyond a prefix's length
// are ignored. It panics on an invalid prefix, as an index out of range does; callers check input
// with [ParsePrefixSet] or netip.ParsePrefix first.
func Prefixes(prefixes ...netip.Prefix) PrefixSet {
	masked := make([]netip.Prefix, len(prefixes))
	for i, p := range prefixes {
		if !p.IsValid() {
			panic(fmt.Sprintf("interception.Prefixes: prefix %d is invalid", i))
		}
		masked[i] = p.Masked()
	}
	slices.SortFunc(masked, netip.Prefix.Compare)
	return PrefixSet{normal(masked)}
}

// normal drops nested prefixes and merges siblings. The list is masked, sorted and overwritten.
func normal(sorted []netip.Prefix) []netip.Prefix {
	if len(sorted) == 0 {
		return nil
	}
	kept := sorted[:0]
	for _, p := range sorted {
		if last := len(kept) - 1; last >= 0 && kept[last].Contains(p.Addr()) {
			continue // sorted: any prefix that contains p comes before it
		}
		kept = mergeSiblings(append(kept, p))
	}
	return kept
}

// mergeSiblings replaces two halves at the end of sorted by their prefix, as often as possible.
func mergeSiblings(sorted []netip.Prefix) []netip.Prefix {
	for n := len(sorted); n >= 2; n = len(sorted) {
		a, b := sorted[n-2], sorted[n-1]
		whole := netip.PrefixFrom(a.Addr(), a.Bits()-1)
		if a.Bits() != b.Bits() || whole != whole.Masked() || !whole.Contains(b.Addr()) {
			return sorted
		}
		sorted = append(sorted[:n-2], whole)
	}
	return sorted
}

// ParsePrefixSet parses a list of CIDR prefixes separated by commas, such as "10.0.0.0/8,
// 2001:db8::/32". Blanks around the list and its elements are ignored. An empty list is the empty
// set, and "*" alone is [AllPrefixes]. A bare address, an empty element, a zone, an IPv4-mapped
// prefix or a "*" beside other elements is an error that quotes the element.
func ParsePrefixSet(list string) (PrefixSet, error) {
	switch list = strings.TrimSpace(list); list {
	case "":
		return PrefixSet{}, nil
	case "*":
		return AllPrefixes(), nil
	}
	prefixes, err := parseList(list, parsePrefix)
	return Prefixes(prefixes...), err
}

// parsePrefix parses one CIDR prefix.
func parsePrefix(element string) (netip.Prefix, error) {
	switch element {
	case "":
		return netip.Prefix{}, errors.New("an element of the list is empty: remove the extra comma")
	case "*":
		return netip.Prefix{}, errors.New(`"*" stands for all addresses and must be alone: remove the other prefixes or the "*"`)
	}
	prefix, err := netip.ParsePrefix(element)
	if err != nil {
		if addr, addrErr := netip.ParseAddr(element); addrErr == nil && addr.Zone() == "" {
			return netip.Prefix{}, fmt.Errorf("%s is an address: write it as the prefix %s/%d", quoteBriefly(element), addr, addr.BitLen())
		}
		return netip.Prefix{}, fmt.Errorf("%s is not a CIDR prefix such as 10.0.0.0/8 or 2001:db8::/32", quoteBriefly(element))
	}
	if prefix.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%s is an IPv4-mapped prefix, which no packet on the wire matches: write it as IPv4", quoteBriefly(element))
	}
	return prefix, nil
}

// IsEmpty reports whether the set has no member.
func (s PrefixSet) IsEmpty() bool { return len(s.prefixes) == 0 }

// IsAll reports whether the set holds every address of both families.
func (s PrefixSet) IsAll() bool { return s.Equal(AllPrefixes()) }

// Contains reports whether addr is a member.
func (s PrefixSet) Contains(addr netip.Addr) bool {
	i, found := slices.BinarySearchFunc(s.prefixes, addr, func(p netip.Prefix, a netip.Addr) int { return p.Addr().Compare(a) })
	return found || i > 0 && s.prefixes[i-1].Contains(addr)
}

// Of returns the members of one family, and the set itself for [BothFamilies].
func (s PrefixSet) Of(f Family) PrefixSet {
	first6, _ := slices.BinarySearchFunc(s.prefixes, IPv6, func(p netip.Prefix, f Family) int { return int(FamilyOf(p.Addr())) - int(f) })
	switch f {
	case IPv4:
		return PrefixSet{slices.Clip(s.prefixes[:first6])}
	case IPv6:
		return PrefixSet{s.prefixes[first6:]}
	case BothFamilies:
	}
	return s
}

// Family returns the family of all members, and [BothFamilies] for a set that is mixed or empty.
func (s PrefixSet) Family() Family {
	if s.IsEmpty() {
		return BothFamilies
	}
	first, last := FamilyOf(s.prefixes[0].Addr()), FamilyOf(s.prefixes[len(s.prefixes)-1].Addr())
	if first != last { // sorted: IPv4 comes first
		return BothFamilies
	}
	return first
}

// Union returns the set of the addresses that are in s, in t, or in both.
func (s PrefixSet) Union(t PrefixSet) PrefixSet {
	both := slices.Concat(s.prefixes, t.prefixes)
	slices.SortFunc(both, netip.Prefix.Compare)
	return PrefixSet{normal(both)}
}

// Equal reports whether both sets have the same members.
func (s PrefixSet) Equal(t PrefixSet) bool { return slices.Equal(s.prefixes, t.prefixes) }

// Len returns the number of prefixes that [PrefixSet.Prefixes] returns.
func (s PrefixSet) Len() int { return len(s.prefixes) }

// Prefixes returns the members as the smallest list of prefixes, sorted. The caller owns the slice.
func (s PrefixSet) Prefixes() []netip.Prefix { return slices.Clone(s.prefixes) }

// All yields the prefixes that [PrefixSet.Prefixes] returns.
func (s PrefixSet) All() iter.Seq[netip.Prefix] { return slices.Values(s.prefixes) }

// String returns the prefixes, separated by commas; "*" for all addresses, "" for the empty set.
func (s PrefixSet) String() string {
	if s.IsAll() {
		return "*"
	}
	words := make([]string, len(s.prefixes))
	for i, p := range s.prefixes {
		words[i] = p.String()
	}
	return strings.Join(words, ",")
}
