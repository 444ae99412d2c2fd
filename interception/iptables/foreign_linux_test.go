// SPDX-License-Identifier: Apache-2.0

package iptables_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/internal/ipset"
	"github.com/meshcni/meshcni/internal/kernel"
)

// sets creates ipsets of addresses in a namespace.
func (p *pod) sets(t *testing.T, names ...string) *ipset.Socket {
	t.Helper()
	socket, err := ipset.Dial(kernel.Of(p.File()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := socket.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, name := range names {
		if err := socket.Create(name, ipset.OfAddresses, interception.IPv4); err != nil {
			t.Fatal(err)
		}
	}
	return socket
}

// foreignChains observes the chains of another program whose names begin with a prefix.
func (p *pod) foreignChains(t *testing.T, by *iptables.Dataplane, prefix string) []interception.ForeignChain {
	t.Helper()
	state, err := by.Observe(t.Context(), p.Netns, "mesh-test")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(state.Foreign, func(c interception.ForeignChain) bool { return !strings.HasPrefix(c.Name, prefix) })
}

// TestForeignSets has rules of other programs name ipsets. What such a rule does to the members'
// packets is known where it names one set, of destinations, and all else was decoded.
func TestForeignSets(t *testing.T) {
	t.Parallel()
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		ns, dp := newPod(t), dataplane(t, iptables.Options{Flavour: flavour, Foreign: true})
		ns.sets(t, "one", "two")
		var lines, want []string
		for rule, decoded := range map[string]string{
			"-p tcp -m owner --socket-exists -m set --match-set one dst -j SNAT --to-source 192.0.2.1": "v4 tcp uid != 4294967295: one, snat to 192.0.2.1",
			"-p tcp -m set --match-set one dst -m tcp --dport 80 -j ACCEPT":                            "v4 tcp dport 80: one, accept",
			"-m set ! --match-set one dst -j ACCEPT":                                                   "v4: , <nil>",
			"-m set --match-set one src -j ACCEPT":                                                     "v4: , <nil>",
			"-m set --match-set one dst -m set --match-set two dst -j ACCEPT":                          "v4: , <nil>",
			"-m set --match-set two dst -m statistic --mode nth --every 2 --packet 0 -j ACCEPT":        "v4: , <nil>",
			"-m set --match-set two dst --return-nomatch -j ACCEPT":                                    "v4: , <nil>",
			"-m set --match-set two dst -j OTHER-JUMPED":                                               "v4: , <nil>",
		} {
			lines, want = append(lines, "-A OTHER "+rule), append(want, decoded)
		}
		ns.load(t, flavour, "*nat\n:OTHER - [0:0]\n:OTHER-JUMPED - [0:0]\n"+strings.Join(lines, "\n")+"\n-A POSTROUTING -j OTHER\nCOMMIT\n")
		var got []string
		for _, c := range ns.foreignChains(t, dp, "OTHER") {
			for _, r := range c.Rules {
				opaque, is := r.Action.(interception.Opaque)
				if !is {
					t.Errorf("%s -> %s is not opaque", r.Match, r.Action)
				}
				got = append(got, fmt.Sprintf("%s: %s, %v", r.Match, opaque.To, opaque.Then))
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestRemoveUnusedSets has an ipset that a rule names, one that none does, and one of another name.
func TestRemoveUnusedSets(t *testing.T) {
	t.Parallel()
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		ns, dp := newPod(t), dataplane(t, iptables.Options{Flavour: flavour})
		if err := dp.RemoveUnusedSets(t.Context(), ns.Netns, "missing"); err != nil {
			t.Fatal(err)
		}
		socket := ns.sets(t, "named", "unnamed", "other")
		ns.load(t, flavour, "*nat\n:OTHER - [0:0]\n-A OTHER -m set --match-set named dst -j ACCEPT\nCOMMIT\n")
		if err := dp.RemoveUnusedSets(t.Context(), ns.Netns, "missing", "named", "unnamed"); err != nil {
			t.Fatal(err)
		}
		names, err := socket.Names()
		if slices.Sort(names); err != nil || !slices.Equal(names, []string{"named", "other"}) {
			t.Errorf("ipsets %q, %v, want the one that a rule names, and the one that was not asked for", names, err)
		}
	})
}

// TestRemoveForeignSets removes another program's chain. The ipset that it names goes with it,
// unless a rule that stays names it, too.
func TestRemoveForeignSets(t *testing.T) {
	t.Parallel()
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		ns, dp := newPod(t), dataplane(t, iptables.Options{Flavour: flavour, Foreign: true})
		socket := ns.sets(t, "alone", "shared", "unnamed")
		if err := socket.Add("alone", ipset.Member{Prefix: netip.MustParsePrefix("10.0.0.1/32"), Comment: "a pod"}); err != nil {
			t.Fatal(err)
		}
		ns.load(t, flavour, "*nat\n:OTHER - [0:0]\n:STAYS - [0:0]\n-A OTHER -m set --match-set alone dst -j ACCEPT\n"+
			"-A OTHER -m set --match-set shared dst -j ACCEPT\n-A STAYS -m set --match-set shared dst -j ACCEPT\n"+
			"-A POSTROUTING -j OTHER\n-A POSTROUTING -j STAYS\nCOMMIT\n")
		if err := dp.RemoveForeign(t.Context(), ns.Netns, ns.foreignChains(t, dp, "OTHER")); err != nil {
			t.Fatal(err)
		}
		if rules := ns.rules(t); strings.Contains(rules, "OTHER") || !strings.Contains(rules, "-A STAYS") || !strings.Contains(rules, "-j STAYS") {
			t.Errorf("the rules are\n%s", rules)
		}
		names, err := socket.Names()
		if slices.Sort(names); err != nil || !slices.Equal(names, []string{"shared", "unnamed"}) {
			t.Errorf("ipsets %q, %v, want the one that a rule names, and the one that no rule has named", names, err)
		}
	})
}
