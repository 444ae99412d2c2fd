// SPDX-License-Identifier: Apache-2.0

package iptables_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/proof"
)

func excluding(t *testing.T) *interception.Plan {
	t.Helper()
	type match = interception.Match
	var four, six []netip.Prefix
	var uids []interception.UID
	var gids []interception.GID
	for i := range 20 {
		four = append(four, netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/16", 2*i)))
		six = append(six, netip.MustParsePrefix(fmt.Sprintf("fd00:%x::/32", 2*i)))
		uids, gids = append(uids, interception.UID(2*i+1)), append(gids, interception.GID(2*i+1))
	}
	links := interception.Not(interception.Interfaces("lo", "net1*", "eth7"))
	return build(t, "mesh-test", func(b *interception.Builder) {
		set := b.Set("four", interception.Prefixes(four...), "a set")
		c := b.NAT("output")
		c.Entry(interception.Output, match{Out: links, L4: interception.TCP()}, "an entry")
		called := b.NAT("called")
		c.Do("not.prefixes", match{Dst: interception.Not(interception.Prefixes(six...)), L4: interception.TCP()}, interception.Return{}, "why")
		c.Do("not.links", match{Out: links}, interception.Accept{}, "why")
		c.Do("not.links.return", match{Out: links, L4: interception.UDP().To(interception.Ports(53, 54))}, interception.Return{}, "why")
		c.Do("between", match{L4: interception.TCP()}, interception.Log{Prefix: "seen"}, "why")
		c.Do("not.users", match{UID: interception.Not(interception.UIDs(uids...))}, interception.Return{}, "why")
		c.Do("not.groups", match{GID: interception.Not(interception.GIDs(gids...)), L4: interception.TCP()},
			interception.RedirectTo{Port: 15006}, "why")
		c.Do("not.set", match{DstSet: interception.Not(set), Src: interception.Is(interception.Prefixes(netip.MustParsePrefix("10.0.0.0/8")))},
			interception.Return{}, "why")
		c.Call("not.called", match{Src: interception.Not(interception.Prefixes(four[:2]...))}, called, "why")
		c.Do("capture", match{L4: interception.TCP()}, interception.RedirectTo{Port: 15001}, "why")
		called.Do("not.both", match{
			Src: interception.Not(interception.Prefixes(four[:3]...)), Dst: interception.Not(interception.Prefixes(four[3:9]...)),
		}, interception.Accept{}, "why")
	})
}

// TestObserveLongExclusions reads rules back that need chains of their own.
func TestObserveLongExclusions(t *testing.T) {
	t.Parallel()
	plan := excluding(t)
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		ns, dp := newPod(t), dataplane(t, iptables.Options{Flavour: flavour})
		if err := dp.Apply(t.Context(), ns.Netns, plan); err != nil {
			t.Fatal(err)
		}
		state, err := dp.Observe(t.Context(), ns.Netns, plan.Owner)
		if err != nil {
			t.Fatal(err)
		}
		for _, drift := range interception.Diff(plan, state) {
			t.Error(drift)
		}
		if got, err := proof.Equivalent(plan, state, proof.Options{}); err != nil || got.Answer != proof.Yes {
			t.Errorf("%v, %v\n%s", got, err, ns.rules(t, flavour))
		}
	})
}

// TestObserveEditedExclusions has another program edit the sorting chains: no edit is missed.
func TestObserveEditedExclusions(t *testing.T) {
	t.Parallel()
	plan := excluding(t)
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		for _, edit := range []string{
			"-I MESH-TEST_1 -p tcp --dport 7 -j ACCEPT", "-A MESH-TEST_1 -p tcp --dport 7 -j ACCEPT", "-D MESH-TEST_1 1", "-F MESH-TEST_1",
			"-I MESH-TEST_2 -p tcp --dport 7 -j ACCEPT", "-A MESH-TEST_2 -p tcp --dport 7 -j ACCEPT", "-D MESH-TEST_2 1", "-F MESH-TEST_2",
			"-I MESH-TEST_CALLED -p tcp -j MESH-TEST_1", "-D MESH-TEST_OUTPUT 1", "-A MESH-TEST_OUTPUT -g MESH-TEST_1",
		} {
			ns, dp := newPod(t), dataplane(t, iptables.Options{Flavour: flavour})
			if err := dp.Apply(t.Context(), ns.Netns, plan); err != nil {
				t.Fatal(err)
			}
			ns.load(t, flavour, "*nat\n"+edit+"\nCOMMIT\n")
			state, err := dp.Observe(t.Context(), ns.Netns, plan.Owner)
			if err != nil {
				t.Fatal(err)
			}
			if len(interception.Diff(plan, state)) == 0 {
				t.Errorf("%s: nothing differs", edit)
			}
			if err := dp.Apply(t.Context(), ns.Netns, plan); err != nil {
				t.Errorf("%s: %v", edit, err)
			}
			if got := ns.rules(t, flavour); strings.Contains(got, "--dport 7 ") {
				t.Errorf("%s: not healed\n%s", edit, got)
			}
		}
	})
}
