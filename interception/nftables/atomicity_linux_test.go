// SPDX-License-Identifier: Apache-2.0

package nftables_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/testing/kerneltest"
)

// TestKernelRefusals has the kernel itself refuse objects, of each kind that it can refuse.
func TestKernelRefusals(t *testing.T) {
	t.Parallel()
	for at, add := range map[interception.RuleID]func(*interception.Builder){
		"bad.address": func(b *interception.Builder) {
			b.Address(interception.Address{ID: "bad.address", Device: "none", Prefix: netip.MustParsePrefix("fd00::2/128"), Why: "bad"})
		},
		"bad.sysctl": func(b *interception.Builder) {
			b.Sysctl(interception.Sysctl{ID: "bad.sysctl", Key: "ipv4/ip_default_ttl", Value: 256, Why: "bad"})
		},
		"bad.key": func(b *interception.Builder) {
			b.Sysctl(interception.Sysctl{ID: "bad.key", Key: "ipv4/no_such_key", Value: 1, Why: "bad"})
		},
		"bad.route": func(b *interception.Builder) {
			b.Route(interception.Route{
				ID: "bad.route", Destination: netip.MustParsePrefix("192.0.2.0/24"), Device: "lo", Gateway: netip.MustParseAddr("198.51.100.1"), Why: "bad",
			})
		},
	} {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			ns := newPod(t)
			before := ns.everything(t)
			err := dataplane(t).Apply(t.Context(), ns.Netns, build(t, "mesh-test", func(b *interception.Builder) {
				b.Address(interception.Address{ID: "a.good", Device: "lo", Prefix: netip.MustParsePrefix("fd00::1/128"), Why: "good"})
				b.Sysctl(interception.Sysctl{ID: "b.good", Key: localnet, Value: 1, Why: "good"})
				add(b)
			}))
			var refused *interception.ApplyError
			if !errors.As(err, &refused) || refused.At != string(at) || refused.Why != "bad" {
				t.Errorf("got %v, want an error about %s", err, at)
			}
			if diff := cmp.Diff(before, ns.everything(t)); diff != "" {
				t.Errorf("not as it was (-before +after):\n%s", diff)
			}
		})
	}
}

// TestLiveSetsStay has more members in a live set than fit one message, while the plan is replaced.
func TestLiveSetsStay(t *testing.T) {
	t.Parallel()
	plan := func(port interception.Port, family interception.Family) *interception.Plan {
		return build(t, "mesh-test", func(b *interception.Builder) {
			live := b.LiveSet("pods", family, "members come and go")
			b.LiveSet("empty", family, "without members")
			c := b.NAT("output")
			c.Entry(interception.Output, interception.Match{L4: interception.TCP()}, "connections from the pod")
			c.Do("to.pods", interception.Match{DstSet: interception.Is(live), L4: interception.TCP()},
				interception.RedirectTo{Port: port}, "to the proxy")
		})
	}
	ns := newPod(t)
	ns.apply(t, plan(15001, interception.IPv4))
	members := `10.0.0.0/8 comment "uid-1", 255.0.0.0/8`
	for i := range 1200 {
		members += fmt.Sprintf(`, 192.%d.%d.1 comment "uid-%d"`, i/200, i%200, i)
	}
	ns.load(t, "add element inet mesh-test set-pods { "+members+" }")
	before := ns.nft(t, "", "list", "set", "inet", "mesh-test", "set-pods")
	ns.apply(t, plan(15002, interception.IPv4))
	if diff := cmp.Diff(before, ns.nft(t, "", "list", "set", "inet", "mesh-test", "set-pods")); diff != "" {
		t.Errorf("the members changed (-before +after):\n%s", diff)
	}
	ns.apply(t, plan(15002, interception.IPv6))
	fresh := newPod(t)
	fresh.apply(t, plan(15002, interception.IPv6))
	if diff := cmp.Diff(fresh.ruleset(t), ns.ruleset(t)); diff != "" {
		t.Errorf("a set of another type kept something (-fresh +replaced):\n%s", diff)
	}
}

// beforeTransactions returns a dataplane that calls f before each transaction.
func beforeTransactions(t testing.TB, f func()) *nftables.Dataplane {
	t.Helper()
	return dataplane(t).Through(func(in *os.File) kernel.Namespace {
		return kerneltest.Interfere(kernel.Of(in), func(c kerneltest.Call, do func() error) error {
			if c.Transaction() {
				f()
			}
			return do()
		})
	})
}

// TestLiveSetsEditedMeanwhile adds a member before the transaction, which is repeated.
func TestLiveSetsEditedMeanwhile(t *testing.T) {
	t.Parallel()
	ns := newPod(t)
	plan := build(t, "mesh-test", func(b *interception.Builder) { b.LiveSet("pods", interception.IPv4, "members come and go") })
	ns.apply(t, plan)
	more := build(t, "mesh-test", func(b *interception.Builder) {
		b.LiveSet("pods", interception.IPv4, "members come and go")
		b.LiveSet("more", interception.IPv4, "so that there is something to change")
	})
	edits := 0
	dp := beforeTransactions(t, func() {
		if edits++; edits <= 4 {
			ns.load(t, fmt.Sprintf("add element inet mesh-test set-pods { 10.0.0.%d }", edits))
		}
	})
	if err := dp.Apply(t.Context(), ns.Netns, more); err != nil {
		t.Fatal(err)
	}
	before := ns.ruleset(t)
	ns.nft(t, "", "get", "element", "inet", "mesh-test", "set-pods", "{ 10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4 }")
	if edits != 5 {
		t.Errorf("%d transactions, want 5:\n%s", edits, before)
	}
	others := beforeTransactions(t, func() { ns.load(t, "add table inet other\ndelete table inet other") })
	if err := others.Apply(t.Context(), ns.Netns, plan); err == nil {
		t.Error("no error though others never stop")
	}
	if diff := cmp.Diff(before, ns.ruleset(t)); diff != "" {
		t.Errorf("not as it was (-before +after):\n%s", diff)
	}
}

// TestConcurrentNetworks has many callers with different plans at one namespace: each call
// succeeds, and one of the plans is in place.
func TestConcurrentNetworks(t *testing.T) {
	t.Parallel()
	plans := make([]*interception.Plan, 4)
	var possible []string
	for i := range plans {
		plans[i] = network(t, interception.RoutingTable(100+i), fmt.Sprintf("10.1.0.%d/24", 10+i))
		ns := newNetworkPod(t)
		ns.apply(t, plans[i])
		possible = append(possible, ns.everything(t))
	}
	ns, dp := newNetworkPod(t), dataplane(t)
	errs := make(chan error)
	for _, plan := range plans {
		go func() { errs <- dp.Apply(t.Context(), ns.Netns, plan) }()
	}
	for range plans {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if got := ns.everything(t); !slices.Contains(possible, got) {
		t.Errorf("none of the plans:\n%s", got)
	}
}

// TestForgedLedger forges the owner's ledger: Remove refuses, and changes nothing.
func TestForgedLedger(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"sysctl ../../kernel/hostname 0 1", "sysctl ipv4/../../kernel/pid_max 0 1", "sysctl ipv4/ip_default_ttl 0 many", "address lo ::x", "other",
	} {
		ns := newPod(t)
		ns.load(t, fmt.Sprintf("table inet mesh-test { set ledger { type mark; elements = { 1 comment %q }; }; }", line))
		before := ns.everything(t)
		if err := dataplane(t).Remove(t.Context(), ns.Netns, "mesh-test"); err == nil {
			t.Errorf("%q: no error", line)
		}
		if diff := cmp.Diff(before, ns.everything(t)); diff != "" {
			t.Errorf("%q: something changed (-before +after):\n%s", line, diff)
		}
	}
}
