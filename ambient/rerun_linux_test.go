// SPDX-License-Identifier: Apache-2.0

package ambient_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// listed returns the rules of a namespace as programs list them, with policy rules and routes.
func listed(t *testing.T, pod *sandboxtest.Pod) string {
	t.Helper()
	all := policies(t, pod)
	for _, program := range []string{"iptables-legacy-save", "ip6tables-legacy-save", "iptables-nft-save", "ip6tables-nft-save"} {
		for line := range strings.Lines(pod.Run(t, "", program)) {
			if strings.HasPrefix(line, "-A") {
				all += program + " " + line
			}
		}
	}
	if strings.Contains(pod.Run(t, "", "nft", "list", "tables"), "inet test-ambient") {
		all += pod.Run(t, "", "nft", "--stateless", "list", "table", "inet", "test-ambient")
	}
	return all
}

// drift compares a plan with the kernel.
func drift(t *testing.T, backend interception.Dataplane, pod *sandboxtest.Pod, plan *interception.Plan) []interception.Drift {
	t.Helper()
	state, err := backend.Observe(t.Context(), pod.Netns, plan.Owner)
	if err != nil {
		t.Fatal(err)
	}
	return interception.Diff(plan, state)
}

func apply(t *testing.T, backend interception.Dataplane, pod *sandboxtest.Pod, plan *interception.Plan) {
	t.Helper()
	if err := backend.Apply(t.Context(), pod.Netns, plan); err != nil {
		t.Fatal(err)
	}
	if found := drift(t, backend, pod, plan); found != nil {
		t.Errorf("after Apply: %v", found)
	}
}

// meddle adds a rule and a chain to what a plan has, and a rule of another program beside it.
func meddle(t *testing.T, backend string, pod *sandboxtest.Pod) {
	t.Helper()
	if backend == "nftables" {
		pod.Run(t, `
			add chain inet test-ambient another
			add rule inet test-ambient another accept
			add rule inet test-ambient hook.nat.output jump another
			insert rule inet test-ambient nat-output tcp dport 123 accept
			add table ip other-program
			add chain ip other-program output { type filter hook output priority 0; }
			add rule ip other-program output tcp dport 9 drop`, "nft", "-f", "-")
		return
	}
	program := "iptables-" + strings.TrimPrefix(backend, "iptables ")
	pod.Run(t, `*nat
:TEST-AMBIENT_ANOTHER - [0:0]
:OTHER-PROGRAM - [0:0]
-A OUTPUT -j TEST-AMBIENT_ANOTHER
-I TEST-AMBIENT_OUTPUT -p tcp --dport 123 -j ACCEPT
-A OUTPUT -p tcp --dport 9 -j OTHER-PROGRAM
COMMIT
`, program+"-restore", "--noflush")
}

// TestAppliedAgain applies each kind of plan that Istio's golden files have, again, and over the
// changes of other programs: the plan is there, and nothing else of its owner's. What is another
// program's stays to the end.
func TestAppliedAgain(t *testing.T) {
	t.Parallel()
	for name, backend := range backends(t) {
		for _, annotation := range []string{
			"", "ambient.istio.io/dns-capture=false", "ambient.istio.io/bypass-inbound-capture=true",
			"istio.io/reroute-virtual-interfaces=fake1s0f0,fake1s0f1",
		} {
			t.Run(name+" "+annotation, func(t *testing.T) {
				t.Parallel()
				pod, plan := sandboxtest.NewPod(t), planOf(t, annotation)
				pod.Run(t, "", "ip", "link", "set", "lo", "up")
				before := listed(t, pod)
				apply(t, backend, pod, plan)
				once := listed(t, pod)
				apply(t, backend, pod, plan)
				if diff := cmp.Diff(once, listed(t, pod)); diff != "" {
					t.Errorf("applied twice (-once +twice):\n%s", diff)
				}
				meddle(t, name, pod)
				if found := drift(t, backend, pod, plan); len(found) < 2 {
					t.Errorf("of two changes is noticed: %v", found)
				}
				apply(t, backend, pod, plan)
				if err := backend.Remove(t.Context(), pod.Netns, plan.Owner); err != nil {
					t.Fatal(err)
				}
				after := listed(t, pod)
				if others := pod.Run(t, "", "nft", "list", "ruleset") + after; !strings.Contains(strings.ToLower(others), "other-program") {
					t.Errorf("the other program's rule is gone:\n%s", others)
				}
				if strings.Contains(strings.ToLower(after), "test-ambient") || !strings.HasPrefix(after, before) {
					t.Errorf("left:\n%s", after)
				}
			})
		}
	}
}

// TestHostPlanComesAndGoes applies the host's plan with a member in each set, again, and removes
// it: the members are there as long as the plan is.
func TestHostPlanComesAndGoes(t *testing.T) {
	t.Parallel()
	for name, backend := range backends(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := sandboxtest.NewPod(t)
			before := listed(t, pod)
			plan, err := ambient.HostPlan(ambient.IstioNumbers(), interception.Facts{IPv6: true, LoopbackIPv6: true}, "test-ambient")
			if err != nil {
				t.Fatal(err)
			}
			apply(t, backend, pod, plan)
			editor, is := backend.(hostBackend)
			if !is {
				t.Fatal("the dataplane edits no sets")
			}
			for _, text := range []string{"10.244.1.10", "fd00:10:244:1::a"} {
				address := netip.MustParseAddr(text)
				edit := interception.SetEdit{Add: map[netip.Addr]string{address: "7c1e"}}
				if err := editor.UpdateSet(t.Context(), pod.Netns, plan.Owner, ambient.ProbeSet(interception.FamilyOf(address)), edit); err != nil {
					t.Fatal(err)
				}
			}
			apply(t, backend, pod, plan)
			state, err := backend.Observe(t.Context(), pod.Netns, plan.Owner)
			if err != nil {
				t.Fatal(err)
			}
			members := 0
			for _, owners := range state.Owners {
				members += len(owners)
			}
			if members != 2 {
				t.Errorf("%d members after the second Apply, want two: %v", members, state.Owners)
			}
			for range 2 { // the second time nothing is there
				if err := backend.Remove(t.Context(), pod.Netns, plan.Owner); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(before, listed(t, pod)); diff != "" {
					t.Errorf("after Remove:\n%s", diff)
				}
			}
			apply(t, backend, pod, plan) // nor is a set in its way
		})
	}
}
