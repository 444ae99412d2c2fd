// SPDX-License-Identifier: Apache-2.0

package lower_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
)

// apart returns n prefixes of one length with gaps between them.
func apart(n int, format string) string {
	words := make([]string, n)
	for i := range words {
		words[i] = fmt.Sprintf(format, 2*i)
	}
	return strings.Join(words, ",")
}

func TestNetworks(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		members     string
		live        bool
		count, bits int
	}{
		"few":                     {members: apart(63, "10.0.%d.0/24")},
		"of one length":           {members: apart(64, "10.0.%d.0/24"), count: 64, bits: 24},
		"addresses":               {members: apart(64, "10.0.0.%d/32"), count: 64, bits: 32},
		"v6":                      {members: apart(64, "2001:db8:%x::/48"), count: 64, bits: 48},
		"some are wider":          {members: apart(64, "10.0.%d.0/24") + ",10.1.0.0/20,10.2.0.0/19", count: 64 + 16 + 32, bits: 24},
		"twice as many":           {members: apart(64, "10.0.%d.0/24") + ",10.2.0.0/18,10.2.128.0/23", count: 64 + 64 + 2, bits: 24},
		"more than twice as many": {members: apart(64, "10.0.%d.0/24") + ",10.2.0.0/18,10.2.128.0/21"},
		"far wider":               {members: apart(64, "2001:db8::%x/128") + ",fc00::/7"},
		"live":                    {members: apart(64, "10.0.%d.0/24"), live: true},
		"none":                    {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			members := prefixes(t, test.members)
			networks, bits := lower.Networks(interception.Set{Live: test.live, Members: members})
			if len(networks) != test.count || bits != test.bits {
				t.Fatalf("got %d networks of %d bits, want %d of %d", len(networks), bits, test.count, test.bits)
			}
			if test.count > 0 {
				sameMembers(t, members, networks, bits)
			}
		})
	}
}

// sameMembers checks that networks are ascending and together form the set.
func sameMembers(t *testing.T, members interception.PrefixSet, networks []netip.Addr, bits int) {
	t.Helper()
	all := make([]netip.Prefix, len(networks))
	for i, network := range networks {
		all[i] = netip.PrefixFrom(network, bits)
		if all[i].Masked() != all[i] || i > 0 && !networks[i-1].Less(network) {
			t.Errorf("network %d is %s, after %s", i, all[i], networks[max(i-1, 0)])
		}
	}
	if got := interception.Prefixes(all...); !got.Equal(members) {
		t.Errorf("got %s, want %s", got, members)
	}
}

// TestNetworksRandom has adjacent and separate members of slightly different lengths.
func TestNetworksRandom(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	found := 0
	for range 200 {
		list := make([]netip.Prefix, 50+r.IntN(200))
		longest := 20 + r.IntN(13)
		for i := range list {
			address := netip.AddrFrom4([4]byte{10, byte(r.IntN(4)), byte(r.IntN(256)), byte(r.IntN(256))})
			list[i] = netip.PrefixFrom(address, longest-max(0, r.IntN(40)-37)).Masked()
		}
		members := interception.Prefixes(list...)
		if networks, bits := lower.Networks(interception.Set{Members: members}); bits != 0 {
			found++
			sameMembers(t, members, networks, bits)
		}
	}
	if found < 20 {
		t.Errorf("networks of %d sets, want 20", found)
	}
}

func TestSetName(t *testing.T) {
	t.Parallel()
	for kernel, want := range map[string]struct {
		name interception.SetName
		bits int
	}{
		"set-a":     {"a", 0},
		"set-a-b":   {"a-b", 0},
		"set-a/24":  {"a", 24},
		"set-a/128": {"a", 128},
	} {
		name, bits, ok := lower.ParseSetName(kernel)
		if !ok || name != want.name || bits != want.bits || lower.SetName(name, bits) != kernel {
			t.Errorf("%s: got %q, %d, %t", kernel, name, bits, ok)
		}
	}
	for _, kernel := range []string{"", "a", "set-", "set-/24", "set-a/", "set-a/0", "set-a/024", "set-a/+24", "set-a/-1", "set-a/24/24", "set-A", "set-a/x"} {
		if name, bits, ok := lower.ParseSetName(kernel); ok {
			t.Errorf("%q is said to be set %q of %d bits", kernel, name, bits)
		}
	}
}
