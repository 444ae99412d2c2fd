// SPDX-License-Identifier: Apache-2.0

package iptables_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/internal/testing/golden"
)

// TestObserveGoldens reads every golden plan back.
func TestObserveGoldens(t *testing.T) {
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
			flavours(t, func(t *testing.T, flavour iptables.Flavour) {
				t.Helper()
				ns := newPod(t)
				dp := dataplane(t, iptables.Options{Flavour: flavour})
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
			})
		})
	}
}

// TestObserveEdits has another program edit rules in ways that a comment does not show.
func TestObserveEdits(t *testing.T) {
	t.Parallel()
	plan := build(t, "mesh-test", func(b *interception.Builder) {
		c := b.NAT("output")
		c.Entry(interception.Output, interception.Match{L4: interception.TCP()}, "connections from the pod")
		ports := interception.PortSet{}
		for port := range interception.Port(20) {
			ports = ports.Union(interception.Ports(2*port + 1))
		}
		c.Do("some.ports", interception.Match{L4: interception.TCP().To(ports)}, interception.Return{}, "many ports")
		c.Do("a.user", interception.Match{UID: interception.Is(interception.UIDs(0))}, interception.Return{}, "a user")
		c.Do("to.proxy", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 15001}, "to the proxy")
		b.NAT("other")
	})
	const comment = `-m comment --comment "a.user HASH a user"`
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		for edits, want := range map[string][]string{
			"": nil,
			"-R MESH-TEST_OUTPUT 3 -m owner --uid-owner 1 " + comment + " -j RETURN": {
				"nat/output: changed a.user (a user): want uid 0 -> return: got v4 uid 1 -> return", "nat/output: extra: got v6 uid 0 -> return",
			},
			"-R MESH-TEST_OUTPUT 3 -m owner --uid-owner 0 " + comment + " -j ACCEPT": {
				"nat/output: changed a.user (a user): want uid 0 -> return: got v4 uid 0 -> accept", "nat/output: extra: got v6 uid 0 -> return",
			},
			"-A MESH-TEST_OTHER -m statistic --mode random --probability 0.5 -j ACCEPT": {
				"nat/other: extra: got v4 -> opaque: -m statistic --mode random --probability 0.50000000000 -j ACCEPT",
			},
			"-I MESH-TEST_OTHER -p tcp -m tcp --dport 80 -j REDIRECT --to-ports 80": {
				"nat/other: extra: got v4 tcp dport 80 -> redirect to :80",
			},
			"-D OUTPUT 1": {
				"nat hook output: changed nat.output.output (connections from the pod): want hook output: tcp -> jump output: " +
					"got hook output: v6 tcp -> jump output",
			},
		} {
			ns := newPod(t)
			dp := dataplane(t, iptables.Options{Flavour: flavour})
			if err := dp.Apply(t.Context(), ns.Netns, plan); err != nil {
				t.Fatal(err)
			}
			before := ns.rules(t, flavour)
			i := strings.Index(before, "a.user ") + len("a.user ")
			if edits != "" {
				ns.load(t, flavour, "*nat\n"+strings.ReplaceAll(edits, "HASH", before[i:i+8])+"\nCOMMIT\n")
			}
			state, err := dp.Observe(t.Context(), ns.Netns, plan.Owner)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, drift := range interception.Diff(plan, state) {
				got = append(got, drift.String())
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: got\n%s\nwant\n%s", edits, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
	})
}

// TestObserveForeign reads the chains of other programs.
func TestObserveForeign(t *testing.T) {
	t.Parallel()
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		ns := newPod(t)
		ns.load(t, flavour, foreign+"*filter\n:FORWARD DROP [0:0]\nCOMMIT\n*nat\n-A FOREIGN -m statistic --mode nth --every 2 --packet 0 -j ACCEPT\nCOMMIT\n")
		dp := dataplane(t, iptables.Options{Flavour: flavour, Foreign: true})
		if err := dp.Apply(t.Context(), ns.Netns, capture(t, 15001, nothingMore)); err != nil {
			t.Fatal(err)
		}
		state, err := dp.Observe(t.Context(), ns.Netns, "mesh-test")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range state.Foreign {
			line := fmt.Sprintf("%s %s %s %d %v", c.Table, c.Name, c.Hook, c.Priority, c.Policy)
			for _, r := range c.Rules {
				line += fmt.Sprintf("; %s -> %v", r.Match, r.Action)
			}
			got = append(got, strings.TrimPrefix(line, "legacy "))
		}
		slices.Sort(got)
		want := []string{
			"ip filter FORWARD forward 0 drop",
			"ip filter INPUT input 0 accept; v4 -> opaque: -p icmp -j ACCEPT",
			"ip nat FOREIGN  0 <nil>; v4 -> return; v4 -> opaque: -m statistic --mode nth --every 2 --packet 0 -j ACCEPT",
			"ip nat OUTPUT output -100 accept; v4 tcp -> jump FOREIGN; v4 -> return",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
