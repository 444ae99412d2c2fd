// SPDX-License-Identifier: Apache-2.0

package iptables_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/internal/testing/golden"
)

// TestGoldens applies every golden plan: to a fresh namespace, again, over another; and removes it.
func TestGoldens(t *testing.T) {
	t.Parallel()
	cases, err := golden.Load("../sidecar/testdata")
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			plan, _, err := c.Plan()
			if err != nil {
				t.Fatal(err)
			}
			other, _, err := cases[(i+1)%len(cases)].Plan()
			if err != nil {
				t.Fatal(err)
			}
			flavours(t, func(t *testing.T, flavour iptables.Flavour) {
				t.Helper()
				ns := newPod(t)
				count := &counted{Runner: iptables.DefaultRunner()}
				dp := dataplane(t, iptables.Options{Flavour: flavour, Runner: count})
				if err := dp.Apply(t.Context(), ns.Netns, plan); err != nil {
					t.Fatal(err)
				}
				if programs := count.programs(); len(programs) > 2 {
					t.Errorf("a fresh namespace took %q", programs)
				}
				fresh := ns.rules(t, flavour)
				if err := dp.Apply(t.Context(), ns.Netns, plan); err != nil {
					t.Fatal(err)
				}
				for _, program := range count.programs() {
					if program[len(program)-5:] != "-save" {
						t.Errorf("the second time started %s", program)
					}
				}
				if diff := cmp.Diff(fresh, ns.rules(t, flavour)); diff != "" {
					t.Errorf("the second time changed something:\n%s", diff)
				}
				if err := dp.Apply(t.Context(), ns.Netns, other); err != nil {
					t.Fatal(err)
				}
				if err := dp.Apply(t.Context(), ns.Netns, plan); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(fresh, ns.rules(t, flavour)); diff != "" {
					t.Errorf("not as in a fresh namespace, after another plan:\n%s", diff)
				}
				if err := dp.Remove(t.Context(), ns.Netns, plan.Owner); err != nil {
					t.Fatal(err)
				}
				if left := ns.rules(t, flavour); left != "" {
					t.Errorf("Remove left:\n%s", left)
				}
			})
		})
	}
}
