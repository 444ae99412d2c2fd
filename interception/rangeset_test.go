// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"math/rand/v2"
	"testing"
)

func TestRangeSetIsCanonical(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		set  PortSet
		want string
	}{
		{"zero value is empty", PortSet{}, ""},
		{"no ports", Ports(), ""},
		{"one port", Ports(80), "80"},
		{"sorted", Ports(443, 80), "80,443"},
		{"doubles fold", Ports(80, 80), "80"},
		{"neighbours join", Ports(82, 80, 81), "80-82"},
		{"first and last stay apart", Ports(65535, 0), "0,65535"},
		{"range", PortRange(8000, 8080), "8000-8080"},
		{"range upside down is empty", PortRange(2, 1), ""},
		{"overlapping ranges join", PortRange(10, 20).Union(PortRange(15, 30)), "10-30"},
		{"nested ranges fold", PortRange(10, 30).Union(PortRange(15, 20)), "10-30"},
		{"two halves are all", PortRange(0, 1000).Union(PortRange(1001, 65535)), "*"},
		{"all", AllPorts(), "*"},
		{"all swallows", AllPorts().Union(Ports(0, 80, 65535)), "*"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := tc.set.String(); got != tc.want {
				t.Errorf("String() = %q, want %q", got, tc.want)
			}
		})
	}
}

// TestRangeSetAgainstMap compares the set with a map over random members.
func TestRangeSetAgainstMap(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		members := map[Port]bool{}
		var set PortSet
		for range random.IntN(30) {
			first := Port(random.IntN(200))
			last := first + Port(random.IntN(10))
			set = set.Union(PortRange(first, last))
			for p := first; p <= last; p++ {
				members[p] = true
			}
		}
		for p := Port(0); p < 220; p++ {
			if set.Contains(p) != members[p] {
				t.Fatalf("Contains(%d) of %s = %t, want %t", p, set, set.Contains(p), members[p])
			}
		}
		if rebuilt := RangesOf(set.Ranges()...); !rebuilt.Equal(set) {
			t.Fatalf("set of the ranges of %s is %s", set, rebuilt)
		}
		if set.IsEmpty() != (len(members) == 0) {
			t.Fatalf("IsEmpty() of %s = %t with %d members", set, set.IsEmpty(), len(members))
		}
	}
}

func TestRangeSetDoesNotShareItsRanges(t *testing.T) {
	t.Parallel()
	set := Ports(80, 443)
	set.Ranges()[0] = Range[Port]{1, 2}
	if got := set.String(); got != "80,443" {
		t.Errorf("after a change to the result of Ranges the set is %q", got)
	}
}

func TestIdentitySets(t *testing.T) {
	t.Parallel()
	if got := UIDs(1337, 0, 1).String(); got != "0-1,1337" {
		t.Errorf("UIDs = %q", got)
	}
	if set := GIDs(4294967295); !set.Contains(4294967295) || set.IsAll() {
		t.Errorf("GIDs at the upper end = %q", set)
	}
}
