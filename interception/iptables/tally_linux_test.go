// SPDX-License-Identifier: Apache-2.0

package iptables_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/internal/ipset"
)

func (h *holding) tally(t testing.TB) string {
	t.Helper()
	got, err := h.Tally(t.Context(), h.Netns, "mesh-test", "pods")
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestTally has other programs change what the kernel sends no notice of, and what is not the
// owner's.
func TestTally(t *testing.T) {
	t.Parallel()
	at := ipset.Member{Prefix: netip.PrefixFrom(address(2), 32)}
	onSet := func(change func(*ipset.Socket) error) func(testing.TB, *holding) {
		return func(t testing.TB, h *holding) { t.Helper(); h.onSets(t, change) }
	}
	run := func(command ...string) func(testing.TB, *holding) {
		return func(t testing.TB, h *holding) { t.Helper(); h.Run(t, "", command...) }
	}
	for _, test := range []struct {
		what    string
		flavour iptables.Flavour
		change  func(testing.TB, *holding)
		shows   bool
	}{
		{"nothing", iptables.Legacy, func(testing.TB, *holding) {}, false},
		{"a flush", iptables.Legacy, run("iptables-legacy", "-F"), true},
		{"a flush of IPv6", iptables.Legacy, run("ip6tables-legacy", "-F"), true},
		{"a chain less", iptables.Legacy, run("iptables-legacy", "-F", "MESH-TEST_OUTPUT"), true},
		{"jumps less", iptables.Legacy, run("iptables-legacy", "-F", "OUTPUT"), true},
		{"another program's rule", iptables.Legacy, run("iptables-legacy", "-I", "OUTPUT", "-j", "ACCEPT"), false},
		{"another program's table", iptables.Legacy, run("iptables-legacy", "-t", "nat", "-A", "OUTPUT", "-j", "ACCEPT"), false},
		{"a chain of legacy beside nft", iptables.NFT, run("iptables-legacy", "-N", "MESH-TEST_OUTPUT"), false},
		{"a member", iptables.NFT, onSet(func(s *ipset.Socket) error { return s.Add("mesh-test_pods_4a", at) }), true},
		{"a member less", iptables.NFT, onSet(func(s *ipset.Socket) error {
			return s.Delete("mesh-test_pods_4a", ipset.Member{Prefix: netip.PrefixFrom(address(1), 32)})
		}), true},
		{"another program's set", iptables.NFT, onSet(func(s *ipset.Socket) error {
			return errors.Join(s.Create("other", ipset.OfAddresses, interception.IPv4), s.Add("other", at))
		}), false},
	} {
		t.Run(test.what, func(t *testing.T) {
			t.Parallel()
			h := newHolding(t, test.flavour, interception.IPv4)
			h.update(t, interception.SetEdit{Add: owners{address(1): "one"}})
			before := h.tally(t)
			test.change(t, h)
			if after := h.tally(t); (after != before) != test.shows {
				t.Errorf("got %q, and %q before", after, before)
			}
		})
	}
}

// TestTallyByDefault counts the rules of either flavour by a dataplane that is given none.
func TestTallyByDefault(t *testing.T) {
	t.Parallel()
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		h := newHolding(t, flavour, interception.IPv4)
		want := h.tally(t)
		if got, err := dataplane(t, iptables.Options{}).Tally(t.Context(), h.Netns, "mesh-test", "pods"); got != want || got == "" || err != nil {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	})
}

// TestTallyOfNothing counts in a namespace without rules and sets.
func TestTallyOfNothing(t *testing.T) {
	t.Parallel()
	d := dataplane(t, iptables.Options{})
	pod := newPod(t)
	if got, err := d.Tally(t.Context(), pod.Netns, "mesh-test", "pods"); got != "" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestTallyRefuses passes what cannot be counted.
func TestTallyRefuses(t *testing.T) {
	t.Parallel()
	d, pod := dataplane(t, iptables.Options{}), newPod(t)
	for what, ask := range map[string]func() (string, error){
		"no namespace": func() (string, error) { return d.Tally(t.Context(), nil, "mesh-test") },
		"no owner":     func() (string, error) { return d.Tally(t.Context(), pod.Netns, "") },
		"no set's name": func() (string, error) {
			return d.Tally(t.Context(), pod.Netns, "mesh-test", "no set")
		},
		"a long name": func() (string, error) {
			return d.Tally(t.Context(), pod.Netns, "mesh-test", "members-of-a-mesh-by-address")
		},
	} {
		if got, err := ask(); err == nil {
			t.Errorf("%s: got %q", what, got)
		}
	}
}
