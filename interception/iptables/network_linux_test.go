// SPDX-License-Identifier: Apache-2.0

package iptables_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
)

// localnet is a sysctl that is 0 in a fresh namespace.
const localnet = "ipv4/conf/all/route_localnet"

// network has objects that are in no table of iptables.
func network(t testing.TB, value int) *interception.Plan {
	t.Helper()
	return capture(t, 15001, func(b *interception.Builder) {
		b.Address(interception.Address{ID: "an.address", Device: "lo", Prefix: netip.MustParsePrefix("fd00::1/128"), Why: "an address"})
		b.Sysctl(interception.Sysctl{ID: "a.sysctl", Key: localnet, Value: 1, Why: "a sysctl"})
		b.Sysctl(interception.Sysctl{ID: "a.ttl", Key: "ipv4/ip_default_ttl", Value: value, Why: "another sysctl"})
		b.Route(interception.Route{
			ID: "a.route", Type: interception.RouteLocal, Destination: netip.MustParsePrefix("0.0.0.0/0"), Device: "lo", Table: 133, Why: "a route",
		})
		b.PolicyRule(interception.PolicyRule{
			ID: "a.rule", Family: interception.IPv4, Mark: interception.WholeMark(1), Table: 133, Priority: 20000, Why: "a policy rule",
		})
	})
}

// everything returns what plans can change, without what the kernel changes by itself.
func (p *pod) everything(t testing.TB) string {
	t.Helper()
	var b strings.Builder
	for _, args := range [][]string{{"-4", "rule"}, {"-N", "route", "show", "table", "133"}, {"-o", "-N", "address", "show", "dev", "lo"}} {
		b.WriteString(p.Run(t, "", append([]string{"ip"}, args...)...))
	}
	for _, key := range []string{localnet, "ipv4/ip_default_ttl"} {
		if err := p.Namespace.Do(func() error {
			text, err := os.ReadFile("/proc/sys/net/" + key)
			fmt.Fprintf(&b, "%s = %s", key, text)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	return strings.ReplaceAll(b.String(), "tentative ", "") + p.rules(t)
}

// withTable makes ip able to list routing table 133, which exists from its first route on.
func (p *pod) withTable(t testing.TB) *pod {
	t.Helper()
	p.Run(t, "", "ip", "route", "add", "198.51.100.0/24", "dev", "lo", "table", "133")
	p.Run(t, "", "ip", "route", "del", "198.51.100.0/24", "dev", "lo", "table", "133")
	return p
}

// TestNetwork applies, repeats, replaces and removes such objects, and reads the ledger.
func TestNetwork(t *testing.T) {
	t.Parallel()
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		ns := newPod(t).withTable(t)
		before := ns.everything(t)
		count := &counted{Runner: iptables.DefaultRunner()}
		dp := dataplane(t, iptables.Options{Flavour: flavour, Runner: count})
		var first string
		for i, value := range []int{65, 65, 66, 65} {
			if err := dp.Apply(t.Context(), ns.Netns, network(t, value)); err != nil {
				t.Fatal(err)
			}
			programs := count.programs()
			state, err := dp.Observe(t.Context(), ns.Netns, "mesh-test")
			if drifts := interception.Diff(network(t, value), state); err != nil || drifts != nil || state.Deviations != nil {
				t.Errorf("observed: %v, %v, %v", drifts, state.Deviations, err)
			}
			count.programs()
			now := ns.everything(t)
			if i == 0 {
				first = now
			}
			if i == 1 && slices.ContainsFunc(programs, func(name string) bool { return strings.HasSuffix(name, "-restore") }) {
				t.Errorf("the second time started %q", programs)
			}
			if diff := cmp.Diff(first, now); diff != "" && value == 65 {
				t.Errorf("not as the first time (-first +now):\n%s", diff)
			}
			for _, want := range []string{
				"fd00::1/128", "20000:\tfrom all fwmark 0x1 lookup 133", "2 default dev lo proto", localnet + " = 1", fmt.Sprintf("ipv4/ip_default_ttl = %d", value),
				`filter -A MESH-TEST_0-LEDGER -m comment --comment "sysctl ipv4/conf/all/route_localnet 0 1"`,
				fmt.Sprintf(`--comment "sysctl ipv4/ip_default_ttl 64 %d"`, value),
			} {
				if !strings.Contains(now, want) {
					t.Errorf("no %q in\n%s", want, now)
				}
			}
		}
		if err := dp.Remove(t.Context(), ns.Netns, "mesh-test"); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, ns.everything(t)); diff != "" {
			t.Errorf("Remove left something (-before +after):\n%s", diff)
		}
	})
}

// TestForgedLedger forges the ledger: Remove refuses, and changes nothing.
func TestForgedLedger(t *testing.T) {
	t.Parallel()
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		for _, rule := range []string{
			`-m comment --comment "sysctl ../../kernel/hostname 0 1"`, `-m comment --comment "sysctl ipv4/ip_default_ttl 0 many"`, "-j ACCEPT",
			`-m comment --comment "sysctl ipv4/ip_default_ttl 64 65" -j ACCEPT`,
		} {
			ns := newPod(t).withTable(t)
			ns.load(t, flavour, "*filter\n-N MESH-TEST_0-LEDGER\n-A MESH-TEST_0-LEDGER "+rule+"\nCOMMIT\n")
			before := ns.everything(t)
			dp := dataplane(t, iptables.Options{Flavour: flavour})
			if err := dp.Remove(t.Context(), ns.Netns, "mesh-test"); err == nil || !strings.Contains(err.Error(), "MESH-TEST_0-LEDGER") {
				t.Errorf("%s: got %v, want an error about the chain", rule, err)
			}
			if diff := cmp.Diff(before, ns.everything(t)); diff != "" {
				t.Errorf("%s: something changed (-before +after):\n%s", rule, diff)
			}
		}
	})
}

// TestCollisions has another program's object in the place of the plan's.
func TestCollisions(t *testing.T) {
	t.Parallel()
	for args, at := range map[string]string{
		"rule add priority 20000 fwmark 7 table 7":   "a.rule",
		"rule add priority 30000 fwmark 1/3 table 7": "a.rule",
		"rule add priority 100 fwmark 1 table 7":     "a.rule",
		"rule add priority 100 fwmark 2/2 table 7":   "",
		"route add 192.0.2.0/24 dev lo table 133":    "a.route",
	} {
		ns := newPod(t).withTable(t)
		ns.Run(t, "", append([]string{"ip"}, strings.Fields(args)...)...)
		before := ns.everything(t)
		err := dataplane(t, iptables.Options{}).Apply(t.Context(), ns.Netns, network(t, 65))
		if at == "" {
			if err != nil {
				t.Errorf("%s: %v", args, err)
			}
			continue
		}
		var refused *interception.ApplyError
		if !errors.As(err, &refused) || refused.At != at || !errors.Is(err, unix.EEXIST) {
			t.Errorf("%s: got %v, want EEXIST about %s", args, err, at)
		}
		if diff := cmp.Diff(before, ns.everything(t)); diff != "" {
			t.Errorf("%s: something was written (-before +after):\n%s", args, diff)
		}
	}
}

// TestStepsFail makes each program of an Apply fail, before or after its work: all is undone.
func TestStepsFail(t *testing.T) {
	t.Parallel()
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		for name, old := range map[string]*interception.Plan{"fresh": nil, "replacing": tamperPlan(t)} {
			for step := 0; ; step++ {
				ns := newPod(t).withTable(t)
				ns.load(t, flavour, foreign)
				if old != nil {
					if err := dataplane(t, iptables.Options{Flavour: flavour}).Apply(t.Context(), ns.Netns, old); err != nil {
						t.Fatal(err)
					}
				}
				before := ns.everything(t)
				failing := &failing{step: step / 2, behind: step%2 == 1}
				err := dataplane(t, iptables.Options{Flavour: flavour, Runner: failing}).Apply(t.Context(), ns.Netns, network(t, 65))
				if failing.step >= 0 {
					if err != nil || step < 4 {
						t.Errorf("%s, %d steps: %v", name, step, err)
					}
					break
				}
				if !errors.Is(err, errKilled) {
					t.Errorf("%s, step %d: got %v", name, step, err)
				}
				if diff := cmp.Diff(lines(before), lines(ns.everything(t))); diff != "" {
					t.Errorf("%s, step %d: not as it was (-before +after):\n%s", name, step, diff)
				}
			}
		}
	})
}

type failing struct {
	step   int
	behind bool
}

// Run is [iptables.Runner.Run].
func (f *failing) Run(ctx context.Context, command iptables.Command) (out iptables.Output, err error) {
	f.step--
	if f.step != -1 || f.behind {
		out, err = iptables.DefaultRunner().Run(ctx, command)
	}
	if f.step == -1 {
		return iptables.Output{}, errors.Join(err, errKilled)
	}
	return out, err
}
