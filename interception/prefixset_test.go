// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestParsePrefixSet(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ list, want string }{
		{"", ""},
		{"*", "*"},
		{" * ", "*"},
		{"0.0.0.0/0, ::/0", "*"},
		{"0.0.0.0/0", "0.0.0.0/0"},
		{" 10.0.0.0/8 , 2001:db8::/32 ", "10.0.0.0/8,2001:db8::/32"},
		{"2001:db8::/32,10.0.0.0/8", "10.0.0.0/8,2001:db8::/32"},
		{"10.1.2.3/8", "10.0.0.0/8"},
		{"10.0.0.0/8,10.1.0.0/16", "10.0.0.0/8"},
		{"10.1.0.0/16,10.0.0.0/8", "10.0.0.0/8"},
		{"10.0.0.0/9,10.128.0.0/9", "10.0.0.0/8"},
		{"10.0.0.0/10,10.64.0.0/10,10.128.0.0/9", "10.0.0.0/8"},
		{"10.0.1.0/24,10.0.2.0/24", "10.0.1.0/24,10.0.2.0/24"},
		{"128.0.0.0/1,0.0.0.0/1", "0.0.0.0/0"},
		{"10.0.0.1/32,10.0.0.1/32", "10.0.0.1/32"},
		{"::/1,8000::/1", "::/0"},
	} {
		got, err := ParsePrefixSet(tc.list)
		if err != nil || got.String() != tc.want {
			t.Errorf("ParsePrefixSet(%q) = %q, %v; want %q", tc.list, got, err, tc.want)
		}
	}
}

func TestParsePrefixSetRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ list, reason string }{
		{"10.0.0.1", "write it as the prefix 10.0.0.1/32"},
		{"::1", "write it as the prefix ::1/128"},
		{"10.0.0.0/8,", "empty"},
		{"10.0.0.0/8,*", "must be alone"},
		{"10.0.0.0/33", "is not a CIDR prefix"},
		{"fe80::%eth0/64", "is not a CIDR prefix"},
		{"::ffff:10.0.0.0/104", "IPv4-mapped"},
		{"10.0.0.0/8\n-j ACCEPT", "is not a CIDR prefix"},
		{"example.com", "is not a CIDR prefix"},
	} {
		got, err := ParsePrefixSet(tc.list)
		if err == nil || !strings.Contains(err.Error(), tc.reason) {
			t.Errorf("ParsePrefixSet(%q) = %q, %v; want an error with %q", tc.list, got, err, tc.reason)
		}
	}
}

// TestPrefixSetHoldsWhatWasPutIn compares random sets with a search through the list.
func TestPrefixSetHoldsWhatWasPutIn(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	address := func() netip.Addr {
		if random.IntN(2) == 0 {
			return netip.AddrFrom4([4]byte{10, 0, 0, byte(random.IntN(256))})
		}
		return netip.AddrFrom16([16]byte{0xfd, 15: byte(random.IntN(256))})
	}
	for range 300 {
		var list []netip.Prefix
		for range random.IntN(40) {
			a := address()
			list = append(list, netip.PrefixFrom(a, a.BitLen()-random.IntN(7)))
		}
		set := Prefixes(list...)
		for range 300 {
			a, want := address(), false
			for _, p := range list {
				want = want || p.Contains(a)
			}
			if set.Contains(a) != want {
				t.Fatalf("Contains(%s) of %s = %t, want %t", a, set, !want, want)
			}
		}
		for i, p := range slices.Collect(set.All()) {
			for j, q := range set.Prefixes() {
				if i != j && p.Overlaps(q) {
					t.Fatalf("%s and %s of %s overlap", p, q, set)
				}
			}
		}
		if !set.Of(IPv4).Union(set.Of(IPv6)).Equal(set) {
			t.Fatalf("the families of %s are %s and %s", set, set.Of(IPv4), set.Of(IPv6))
		}
	}
}

func TestPrefixSetFamily(t *testing.T) {
	t.Parallel()
	v4, v6 := netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")
	for _, tc := range []struct {
		set  PrefixSet
		want Family
	}{
		{PrefixSet{}, BothFamilies},
		{Prefixes(v4), IPv4},
		{Prefixes(v6), IPv6},
		{Prefixes(v6, v4), BothFamilies},
	} {
		if got := tc.set.Family(); got != tc.want {
			t.Errorf("Family of %q = %s, want %s", tc.set, got, tc.want)
		}
	}
}
