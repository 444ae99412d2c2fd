// SPDX-License-Identifier: Apache-2.0

package lower_test

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
)

func prefixes(t testing.TB, list string) interception.PrefixSet {
	t.Helper()
	set, err := interception.ParsePrefixSet(list)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestIntervals(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]string{
		"":                            "",
		"10.0.0.0/8":                  "10.0.0.0/8",
		"10.0.0.1/32":                 "10.0.0.1",
		"10.0.0.0/8,12.0.0.0/8":       "10.0.0.0/8 12.0.0.0/8",
		"10.0.0.0/8,11.0.0.0/9":       "10.0.0.0-11.127.255.255",
		"10.0.0.1/32,10.0.0.2/31":     "10.0.0.1-10.0.0.3",
		"0.0.0.0/0":                   "0.0.0.0/0",
		"255.255.255.255/32,::/128":   "255.255.255.255 ::",
		"0.0.0.0/1,128.0.0.0/2":       "0.0.0.0-191.255.255.255",
		"::/0":                        "::/0",
		"2001:db8::/32,2001:db9::/33": "2001:db8::-2001:db9:7fff:ffff:ffff:ffff:ffff:ffff",
		"2001:db8::/127":              "2001:db8::/127",
		"ffff::/16,fe00::/9":          "fe00::/9 ffff::/16",
	} {
		var words []string
		for _, interval := range lower.Intervals(prefixes(t, list)) {
			words = append(words, interval.String())
		}
		if got := strings.Join(words, " "); got != want {
			t.Errorf("intervals of %q: got %q, want %q", list, got, want)
		}
	}
}

// TestIntervalsRandom checks that intervals have the same members, ascend and never touch.
func TestIntervalsRandom(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		set := randomPrefixes(r)
		intervals := lower.Intervals(set)
		for i, interval := range intervals {
			if interval.Last.Less(interval.First) {
				t.Fatalf("%v: %v ends before it begins", set, interval)
			}
			if i > 0 && !intervals[i-1].Last.Next().Less(interval.First) && intervals[i-1].Last.Is4() == interval.First.Is4() {
				t.Fatalf("%v: %v touches %v", set, intervals[i-1], interval)
			}
			if prefix, ok := interval.Prefix(); ok && !interception.Prefixes(prefix).Equal(within(set, interval)) {
				t.Fatalf("%v: %v is not the prefix %v", set, interval, prefix)
			}
			all := interval.Prefixes()
			if got := interception.Prefixes(all...); !got.Equal(within(set, interval)) || got.Len() != len(all) {
				t.Fatalf("%v: %v has the prefixes %v", set, interval, all)
			}
			for _, address := range []netip.Addr{interval.First, interval.Last} {
				if !set.Contains(address) {
					t.Fatalf("%v does not contain %v of %v", set, address, interval)
				}
			}
			for _, address := range []netip.Addr{interval.First.Prev(), interval.Last.Next()} {
				if address.IsValid() && set.Contains(address) {
					t.Fatalf("%v contains %v, which is beside %v", set, address, interval)
				}
			}
		}
		for _, prefix := range set.Prefixes() {
			if !covered(intervals, prefix.Addr()) {
				t.Fatalf("%v is in no interval of %v", prefix, intervals)
			}
		}
	}
}

// within returns the members of a set between the ends of an interval.
func within(set interception.PrefixSet, interval lower.Interval) interception.PrefixSet {
	var list []netip.Prefix
	for _, prefix := range set.Prefixes() {
		if !prefix.Addr().Less(interval.First) && !interval.Last.Less(prefix.Addr()) {
			list = append(list, prefix)
		}
	}
	return interception.Prefixes(list...)
}

func covered(intervals []lower.Interval, address netip.Addr) bool {
	for _, interval := range intervals {
		if !address.Less(interval.First) && !interval.Last.Less(address) {
			return true
		}
	}
	return false
}

// randomPrefixes returns prefixes of both families, close to each other and to the ends.
func randomPrefixes(r *rand.Rand) interception.PrefixSet {
	list := make([]netip.Prefix, r.IntN(12))
	for i := range list {
		bytes := [16]byte{0: []byte{0, 10, 255}[r.IntN(3)], 1: byte(r.IntN(256)), 15: byte(r.IntN(4))}
		if r.IntN(2) == 0 {
			list[i] = netip.PrefixFrom(netip.AddrFrom4([4]byte(bytes[:4])), r.IntN(33))
		} else {
			list[i] = netip.PrefixFrom(netip.AddrFrom16(bytes), r.IntN(129))
		}
	}
	return interception.Prefixes(list...)
}

func TestPrefixesOfAnEmptyInterval(t *testing.T) {
	t.Parallel()
	empty := lower.Interval{First: netip.MustParseAddr("10.0.0.2"), Last: netip.MustParseAddr("10.0.0.1")}
	if got := empty.Prefixes(); got != nil {
		t.Errorf("Prefixes = %v, want none", got)
	}
}
