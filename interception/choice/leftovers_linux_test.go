// SPDX-License-Identifier: Apache-2.0

package choice_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/choice/standard"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// pod is a new network namespace, as the dataplane and as programs see it.
type pod struct{ *sandboxtest.Pod }

func newPod(t testing.TB) *pod {
	t.Helper()
	return &pod{sandboxtest.NewPod(t)}
}

// rules returns all rules by their places, which the tests are about.
func (p *pod) rules(t testing.TB) map[string]bool {
	t.Helper()
	places := map[string]bool{}
	for _, flavour := range []string{"legacy", "nft"} {
		for _, program := range []string{"iptables-" + flavour + "-save", "ip6tables-" + flavour + "-save"} {
			if strings.Contains(p.Run(t, "", program), "MESH-TEST_") {
				places["iptables "+flavour] = true
			}
		}
	}
	if strings.Contains(p.Run(t, "", "nft", "list", "tables"), "inet mesh-test") {
		places["nftables"] = true
	}
	return places
}

// network returns the objects other than rules.
func (p *pod) network(t testing.TB) string {
	t.Helper()
	text := p.Run(t, "", "ip", "-4", "rule") + p.Run(t, "", "ip", "-o", "-N", "address", "show", "dev", "lo")
	for _, key := range []string{"ipv4/conf/all/route_localnet", "ipv4/ip_default_ttl"} {
		if err := p.Namespace.Do(func() error {
			value, err := os.ReadFile("/proc/sys/net/" + key)
			text += fmt.Sprintf("%s = %s", key, value)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	return strings.ReplaceAll(text, "tentative ", "")
}

// withNetwork adds objects other than rules, some with a value that changes from plan to plan.
func withNetwork(value int) func(*interception.Builder) {
	return func(b *interception.Builder) {
		b.Address(interception.Address{ID: "an.address", Device: "lo", Prefix: netip.MustParsePrefix("fd00::1/128"), Why: "an address"})
		b.Sysctl(interception.Sysctl{ID: "a.sysctl", Key: "ipv4/conf/all/route_localnet", Value: 1, Why: "a sysctl"})
		b.Sysctl(interception.Sysctl{ID: "a.ttl", Key: "ipv4/ip_default_ttl", Value: value, Why: "another sysctl"})
		b.PolicyRule(interception.PolicyRule{
			ID: "a.rule", Family: interception.IPv4, Mark: interception.WholeMark(1337), Table: 133, Priority: uint32(20000 + value), Why: "a policy rule",
		})
	}
}

// backends returns the dataplanes that the tests switch between, by the place of their rules.
func backends(t testing.TB) map[string]interception.Dataplane {
	t.Helper()
	all := map[string]interception.Dataplane{}
	for _, flavour := range []iptables.Flavour{iptables.Legacy, iptables.NFT} {
		candidates, err := standard.Candidates(nftables.Options{}, iptables.Options{Flavour: flavour})
		if err != nil {
			t.Fatal(err)
		}
		all["nftables"], all["iptables "+string(flavour)] = candidates[0].Dataplane, candidates[1].Dataplane
	}
	return all
}

// switches runs a test for each change from one backend to another.
func switches(t *testing.T, test func(t *testing.T, from, to string)) {
	t.Helper()
	all := []string{"nftables", "iptables legacy", "iptables nft"}
	for _, from := range all {
		for _, to := range all {
			if (from == "nftables") != (to == "nftables") {
				t.Run(from+" to "+to, func(t *testing.T) {
					t.Parallel()
					test(t, from, to)
				})
			}
		}
	}
}

// TestLeftovers applies plans with two dataplanes in turn. The first one's rules are removed, other
// objects are taken over, and Remove restores the state before both.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	switches(t, func(t *testing.T, from, to string) {
		t.Helper()
		all, ns := backends(t), newPod(t)
		before := ns.network(t)
		direct := newPod(t) // gets the second plan only
		for _, step := range []struct {
			by  string
			ns  *pod
			ttl int
		}{{from, ns, 65}, {to, ns, 66}, {to, ns, 66}, {to, direct, 66}} {
			if err := all[step.by].Apply(t.Context(), step.ns.Netns, capture(t, withNetwork(step.ttl))); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[string]bool{step.by: true}, step.ns.rules(t)); diff != "" {
				t.Errorf("rules behind %s (-want +got):\n%s", step.by, diff)
			}
		}
		if diff := cmp.Diff(direct.network(t), ns.network(t)); diff != "" {
			t.Errorf("not as in a fresh namespace (-fresh +got):\n%s", diff)
		}
		ns.checkObserved(t, all[to], capture(t, withNetwork(66)))
		if err := all[to].Remove(t.Context(), ns.Netns, "mesh-test"); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, ns.network(t)); diff != "" || len(ns.rules(t)) > 0 {
			t.Errorf("Remove left %v (-before +after):\n%s", ns.rules(t), diff)
		}
	})
}

// TestLeftoversBesideRules has a second plan that lacks objects of the first. The record loses
// them, too: a sysctl that only the record has would be drift.
func TestLeftoversBesideRules(t *testing.T) {
	t.Parallel()
	switches(t, func(t *testing.T, from, to string) {
		t.Helper()
		all, ns := backends(t), newPod(t)
		before := ns.network(t)
		less := capture(t, func(b *interception.Builder) {
			b.Sysctl(interception.Sysctl{ID: "a.ttl", Key: "ipv4/ip_default_ttl", Value: 65, Why: "another sysctl"})
		})
		if err := all[from].Apply(t.Context(), ns.Netns, capture(t, withNetwork(65))); err != nil {
			t.Fatal(err)
		}
		if err := all[to].Apply(t.Context(), ns.Netns, less); err != nil {
			t.Fatal(err)
		}
		want := strings.Replace(before, "ip_default_ttl = 64", "ip_default_ttl = 65", 1)
		if diff := cmp.Diff(want, ns.network(t)); diff != "" || !ns.rules(t)[to] {
			t.Errorf("got rules of %v (-want +got):\n%s", ns.rules(t), diff)
		}
		ns.checkObserved(t, all[to], less)
	})
}

// checkObserved reports drift from what a dataplane has applied.
func (p *pod) checkObserved(t testing.TB, by interception.Dataplane, plan *interception.Plan) {
	t.Helper()
	state, err := by.Observe(t.Context(), p.Netns, plan.Owner)
	if drift := interception.Diff(plan, state); err != nil || drift != nil {
		t.Errorf("observed: drift %v, error %v", drift, err)
	}
}

// TestRemoveOfAnother removes with one dataplane what another applied.
func TestRemoveOfAnother(t *testing.T) {
	t.Parallel()
	switches(t, func(t *testing.T, from, to string) {
		t.Helper()
		all, ns := backends(t), newPod(t)
		before := ns.network(t)
		if err := all[from].Apply(t.Context(), ns.Netns, capture(t, withNetwork(65))); err != nil {
			t.Fatal(err)
		}
		if err := all[to].Remove(t.Context(), ns.Netns, "mesh-test"); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, ns.network(t)); diff != "" || len(ns.rules(t)) > 0 {
			t.Errorf("Remove left %v (-before +after):\n%s", ns.rules(t), diff)
		}
	})
}

// predecessor lets the test check the namespace before the old rules are removed.
type predecessor struct {
	*iptables.Dataplane
	atRemove func() error
}

func (p predecessor) RemoveRules(ctx context.Context, ns *interception.Netns, owner interception.Owner) error {
	if err := p.atRemove(); err != nil {
		return err
	}
	return p.Dataplane.RemoveRules(ctx, ns, owner)
}

// TestLeftoversGoLast checks that the new rules are complete when the old ones are removed. If
// their removal fails, both are in place, the error reports it, and the next Apply continues.
func TestLeftoversGoLast(t *testing.T) {
	t.Parallel()
	for name, plan := range map[string]func(ttl int) *interception.Plan{
		"rules alone":  func(int) *interception.Plan { return capture(t) },
		"with network": func(ttl int) *interception.Plan { return capture(t, withNetwork(ttl)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := newPod(t)
			before := ns.network(t)
			old, err := iptables.New(iptables.Options{Flavour: iptables.NFT})
			if err != nil {
				t.Fatal(err)
			}
			if err := old.Apply(t.Context(), ns.Netns, plan(65)); err != nil {
				t.Fatal(err)
			}
			rulesBefore := ns.Run(t, "", "ip", "-4", "rule")
			failure := errors.New("of the test")
			asked := 0
			next, err := nftables.New(nftables.Options{Predecessors: []interception.Dataplane{predecessor{old, func() error {
				asked++
				if diff := cmp.Diff(map[string]bool{"nftables": true, "iptables nft": true}, ns.rules(t)); diff != "" {
					t.Errorf("when the old rules go (-want +got):\n%s", diff)
				}
				for line := range strings.Lines(rulesBefore) {
					if !strings.Contains(ns.Run(t, "", "ip", "-4", "rule"), line) {
						t.Errorf("policy rule %q went before the rules that need it", line)
					}
				}
				return failure
			}}}})
			if err != nil {
				t.Fatal(err)
			}
			if err := next.Apply(t.Context(), ns.Netns, plan(66)); !errors.Is(err, failure) || !strings.Contains(err.Error(), "rules of iptables are left") || asked != 2 {
				t.Errorf("asked %d times: got %v", asked, err)
			}
			failure = nil
			if err := next.Apply(t.Context(), ns.Netns, plan(66)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[string]bool{"nftables": true}, ns.rules(t)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if err := next.Remove(t.Context(), ns.Netns, "mesh-test"); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, ns.network(t)); diff != "" {
				t.Errorf("Remove left something (-before +after):\n%s", diff)
			}
		})
	}
}

// TestFreshStartsNoProgram looks for leftovers in a new pod without starting a program, whatever
// nf_tables rules other programs have.
func TestFreshStartsNoProgram(t *testing.T) {
	t.Parallel()
	ns := newPod(t)
	ns.Run(t, "", "nft", "add table ip nat; add chain ip nat OTHER_OUTPUT")
	candidates, err := standard.Candidates(nftables.Options{}, iptables.Options{Runner: none{t}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := candidates[0].Dataplane.Apply(t.Context(), ns.Netns, capture(t)); err != nil {
			t.Error(err)
		}
	}
	if err := candidates[0].Dataplane.Remove(t.Context(), ns.Netns, "mesh-test"); err != nil {
		t.Error(err)
	}
}

// none refuses to start programs.
type none struct{ t testing.TB }

// Run implements [iptables.Runner].
func (n none) Run(_ context.Context, c iptables.Command) (iptables.Output, error) {
	n.t.Errorf("%q was started", c.Args)
	return iptables.Output{}, exec.ErrNotFound
}

// TestHasFormer applies a plan by one backend, and asks a dataplane that prefers another.
func TestHasFormer(t *testing.T) {
	t.Parallel()
	switches(t, func(t *testing.T, from, to string) {
		t.Helper()
		all, ns := backends(t), newPod(t)
		chosen, err := choice.New(choice.Candidate{Name: to, Dataplane: all[to]}, choice.Candidate{Name: from, Dataplane: all[from]})
		if err != nil {
			t.Fatal(err)
		}
		check := func(when string, want bool) {
			t.Helper()
			if has, err := chosen.HasFormer(t.Context(), ns.Netns, "mesh-test"); has != want || err != nil {
				t.Errorf("%s: %t, %v, want %t", when, has, err, want)
			}
		}
		check("in an empty namespace", false)
		if err := all[from].Apply(t.Context(), ns.Netns, capture(t)); err != nil {
			t.Fatal(err)
		}
		check("after the other has applied a plan", true)
		if err := chosen.Apply(t.Context(), ns.Netns, capture(t)); err != nil {
			t.Fatal(err)
		}
		check("after Apply", false)
	})
}
