// SPDX-License-Identifier: Apache-2.0

package nftables_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
)

// TestManyPrefixes applies plans with more prefixes than an attribute holds, and reads the kernel's
// sets back. Where the user may not send as much at once, nothing is applied.
func TestManyPrefixes(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1_100, 1_700, 10_000} {
		v4, v6 := scattered(n, interception.IPv4), scattered(n, interception.IPv6)
		for name, excluded := range map[string]interception.PrefixSet{
			"v4": v4, "v6": v6, "both": v4.Union(v6),
			"v4 intervals": v4.Union(prefixes("192.0.0.0/8")), "v6 intervals": v6.Union(prefixes("fc00::/7")),
		} {
			t.Run(fmt.Sprintf("%d %s", n, name), func(t *testing.T) {
				t.Parallel()
				ns := newPod(t)
				err := dataplane(t).Apply(t.Context(), ns.Netns, sidecarPlan(t, excluded))
				if errors.Is(err, unix.EMSGSIZE) && sendsAreLimited(t) {
					if ruleset := ns.ruleset(t); ruleset != "" {
						t.Errorf("Apply refused the plan and left\n%s", ruleset)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				for _, family := range []interception.Family{interception.IPv4, interception.IPv6} {
					if members := excluded.Of(family); !members.IsEmpty() {
						ns.hasMembers(t, interception.SetName("excluded-"+family.String()), members)
					}
				}
			})
		}
	}
}

// hasMembers checks the members of a set in the kernel, whatever its form.
func (p *pod) hasMembers(t testing.TB, name interception.SetName, members interception.PrefixSet) {
	t.Helper()
	var want []lower.Interval
	networks, bits := lower.Networks(interception.Set{Name: name, Members: members})
	for _, network := range networks {
		want = append(want, lower.Interval{First: network, Last: network}) // the rule's mask covers the rest
	}
	if bits == 0 {
		want = lower.Intervals(members)
	}
	if got := p.intervals(t, lower.SetName(name, bits)); !slices.Equal(got, want) {
		t.Errorf("set %s: the kernel has %d elements, and should have %d for %d prefixes", name, len(got), len(want), members.Len())
	}
}

// sendsAreLimited reports whether net.core.wmem_max limits this process, as it does every user
// except the host's root: then the kernel refuses the largest plans as a whole.
func sendsAreLimited(t *testing.T) bool {
	t.Helper()
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	return errors.Is(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 1<<20), unix.EPERM)
}

// TestNeighbours has prefixes that touch, up to both ends of the address space.
func TestNeighbours(t *testing.T) {
	t.Parallel()
	for name, members := range map[string]interception.PrefixSet{
		"v4":     prefixes("0.0.0.0/8", "1.0.0.0/9", "10.0.0.0/8", "11.0.0.0/9", "11.128.0.0/10", "254.0.0.0/8", "255.128.0.0/9"),
		"v4 all": prefixes("0.0.0.0/0"),
		"v4 end": prefixes("255.255.255.255/32"),
		"v6":     prefixes("::/64", "0:0:0:1::/64", "0:0:0:2::/64", "2001:db8::/32", "2001:db9::/33", "ffff:ffff::/32"),
		"v6 all": prefixes("::/0"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := newPod(t)
			ns.apply(t, sidecarPlan(t, members))
			got := ns.intervals(t, "set-excluded-"+members.Family().String())
			if want := lower.Intervals(members); !slices.Equal(got, want) {
				t.Errorf("the kernel has %v, want %v", got, want)
			}
		})
	}
}

func (p *pod) intervals(t testing.TB, set string) []lower.Interval {
	t.Helper()
	var listing struct {
		Nftables []struct {
			Set *struct {
				Elem []json.RawMessage `json:"elem"`
			} `json:"set"`
		} `json:"nftables"`
	}
	text := p.nft(t, "", "-j", "list", "set", "inet", "mesh-test", set)
	if err := json.Unmarshal([]byte(text), &listing); err != nil {
		t.Fatal(err)
	}
	var intervals []lower.Interval
	for _, object := range listing.Nftables {
		if object.Set == nil {
			continue
		}
		for _, element := range object.Set.Elem {
			intervals = append(intervals, parseElement(t, element))
		}
	}
	slices.SortFunc(intervals, func(a, b lower.Interval) int { return a.First.Compare(b.First) })
	return intervals
}

// parseElement parses a set element of nft's JSON: an address, a prefix or a range.
func parseElement(t testing.TB, element json.RawMessage) lower.Interval {
	t.Helper()
	var address netip.Addr
	if json.Unmarshal(element, &address) == nil {
		return lower.Interval{First: address, Last: address}
	}
	var other struct {
		Prefix *struct {
			Addr netip.Addr `json:"addr"`
			Len  int        `json:"len"`
		} `json:"prefix"`
		Range []netip.Addr `json:"range"`
	}
	if err := json.Unmarshal(element, &other); err != nil {
		t.Fatalf("%s: %v", element, err)
	}
	switch {
	case other.Prefix != nil:
		return lower.Intervals(interception.Prefixes(netip.PrefixFrom(other.Prefix.Addr, other.Prefix.Len)))[0]
	case len(other.Range) == 2:
		return lower.Interval{First: other.Range[0], Last: other.Range[1]}
	default:
		t.Fatalf("element %s", element)
		return lower.Interval{}
	}
}
