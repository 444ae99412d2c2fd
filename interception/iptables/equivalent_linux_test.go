// SPDX-License-Identifier: Apache-2.0

package iptables_test

import (
	"flag"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/proof"
	"github.com/meshcni/meshcni/internal/testing/golden"
	"github.com/meshcni/meshcni/internal/testing/goldencases"
)

var mutations = flag.Int("mutations", 0, "how many mutations of each golden plan the kernel is asked about; one of some when 0")

// TestEquivalentToGoldenPlans proves that the kernel's state after Apply does what the plan does.
// One proof covers both flavours if the same is read back from them.
func TestEquivalentToGoldenPlans(t *testing.T) {
	t.Parallel()
	cases, err := golden.Load("../sidecar/testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			plan, _, err := c.Plan()
			if err != nil {
				t.Fatal(err)
			}
			var proved []interception.State
			for _, flavour := range []iptables.Flavour{iptables.Legacy, iptables.NFT} {
				state := applied(t, flavour, plan)
				if slices.ContainsFunc(proved, func(s interception.State) bool { return reflect.DeepEqual(s, state) }) {
					continue
				}
				if got, err := proof.Equivalent(plan, state, proof.Options{}); err != nil || got.Answer != proof.Yes {
					t.Errorf("%s: %v, %v", flavour, got, err)
				}
				proved = append(proved, state)
			}
		})
	}
}

func applied(t *testing.T, flavour iptables.Flavour, plan *interception.Plan) interception.State {
	t.Helper()
	ns, dp := newPod(t), dataplane(t, iptables.Options{Flavour: flavour, Foreign: true})
	if err := dp.Apply(t.Context(), ns.Netns, plan); err != nil {
		t.Fatal(err)
	}
	state, err := dp.Observe(t.Context(), ns.Netns, plan.Owner)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// TestMutationsOfGoldenPlans proves that changed plans differ from the kernel's state, and has the
// kernel confirm the packets that show it.
func TestMutationsOfGoldenPlans(t *testing.T) {
	t.Parallel()
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		dp := dataplane(t, iptables.Options{Flavour: flavour})
		if *mutations > 0 {
			goldencases.Refute(t, dp, "../sidecar/testdata", 1, *mutations)
			return
		}
		goldencases.Refute(t, dp, "../sidecar/testdata", 12, 1)
	})
}

// TestEquivalentBesideOthers has other programs' rules in the chains of the hooks.
func TestEquivalentBesideOthers(t *testing.T) {
	t.Parallel()
	plan := capture(t, 15001, nothingMore)
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		for script, want := range map[string]string{
			"*nat\n-I OUTPUT -p tcp --dport 23 -j ACCEPT\nCOMMIT\n":   "nat/OUTPUT",
			"*filter\n-A INPUT -p tcp --dport 23 -j DROP\nCOMMIT\n":   "no: tcp",
			"*filter\n-A INPUT -p tcp --dport 23 -j ACCEPT\nCOMMIT\n": "yes",
		} {
			ns, dp := newPod(t), dataplane(t, iptables.Options{Flavour: flavour, Foreign: true})
			if err := dp.Apply(t.Context(), ns.Netns, plan); err != nil {
				t.Fatal(err)
			}
			ns.Run(t, script, "iptables-"+string(flavour)+"-restore", "-n")
			state, err := dp.Observe(t.Context(), ns.Netns, plan.Owner)
			if err != nil {
				t.Fatal(err)
			}
			got, err := proof.Equivalent(plan, state, proof.Options{})
			if err != nil || !strings.Contains(got.String(), want) {
				t.Errorf("%s: %v, %v, want %q", script, got, err, want)
			}
			if drifts := interception.Diff(plan, state); strings.Contains(script, "OUTPUT") != (len(drifts) > 0) {
				t.Errorf("%s: %v", script, drifts)
			}
		}
	})
}
