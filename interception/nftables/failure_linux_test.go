// SPDX-License-Identifier: Apache-2.0

package nftables_test

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/testing/kerneltest"
)

// oldNetwork precedes the plan of network, and has objects of all kinds: some are the same, some
// are in the place of the other's, and some are its own.
func oldNetwork(t testing.TB) *interception.Plan {
	t.Helper()
	return build(t, "mesh-test", func(b *interception.Builder) {
		if hasDummies(t) {
			b.Link(interception.Link{ID: "link.dummy", Name: "mesh0", Why: "a link"})
			b.Link(interception.Link{ID: "old.link", Name: "mesh1", Why: "a link"})
		}
		for i, address := range []string{"10.1.0.3/24", "10.1.0.4/24", "fd00::1/128"} {
			b.Address(interception.Address{
				ID: "old.address." + interception.RuleID(rune('a'+i)), Device: "mesh0", Prefix: netip.MustParsePrefix(address), Why: "an address",
			})
		}
		b.Sysctl(interception.Sysctl{ID: "old.sysctl", Key: "ipv4/ip_default_ttl", Value: 65, Why: "a sysctl"})
		b.Sysctl(interception.Sysctl{ID: "same.sysctl", Key: localnet, Value: 1, Why: "a sysctl"})
		b.Route(interception.Route{ID: "old.route", Destination: netip.MustParsePrefix("198.51.100.0/24"), Device: "lo", Why: "a route"})
		b.Route(interception.Route{
			ID: "replaced.route", Destination: netip.MustParsePrefix("192.0.2.0/24"), Device: "mesh0",
			Gateway: netip.MustParseAddr("10.1.0.9"), Why: "a route by another gateway",
		})
		b.PolicyRule(interception.PolicyRule{
			ID: "old.rule", Family: interception.IPv4, Mark: interception.WholeMark(1), Table: 7, Priority: 20001, Why: "a policy rule",
		})
		b.LiveSet("live", interception.IPv4, "members come and go")
		b.NAT("old").Entry(interception.Prerouting, interception.Match{L4: interception.TCP()}, "connections to the pod")
	})
}

// change takes a dataplane from one plan to another. Nil means that the owner has nothing.
type change struct {
	name     string
	from, to *interception.Plan
}

// changes go from and to nothing, between plans with all kinds of objects, and of rules alone.
func changes(t testing.TB) []change {
	t.Helper()
	rules := func(port interception.Port) *interception.Plan {
		return build(t, "mesh-test", func(b *interception.Builder) {
			c := b.NAT("output")
			c.Entry(interception.Output, interception.Match{L4: interception.TCP()}, "connections from the pod")
			c.Do("a.rule", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: port}, "to the proxy")
		})
	}
	plan := network(t, 133, "10.1.0.1/24", "10.1.0.3/24", "fd01::1/64")
	return []change{
		{"fresh", nil, plan},
		{"replaced", oldNetwork(t), plan},
		{"removed", oldNetwork(t), nil},
		{"fresh rules", nil, rules(15001)},
		{"replaced rules", rules(15001), rules(15002)},
		{"removed rules", rules(15001), nil},
		{"rules in place of a network", oldNetwork(t), rules(15001)},
	}
}

// newForeignPod returns a pod in which other programs have something of each kind.
func newForeignPod(t testing.TB) *pod {
	t.Helper()
	ns := newNetworkPod(t)
	ns.load(t, "table inet foreign { chain c { type nat hook output priority -100; tcp dport 1 redirect to :2; }; }")
	ns.ip(t, "-4", "rule", "add", "priority", "30000", "fwmark", "7", "table", "7")
	ns.ip(t, "-4", "route", "add", "203.0.113.0/24", "dev", "lo", "table", "9")
	ns.ip(t, "address", "add", "10.9.0.1/24", "dev", "lo")
	return ns
}

// reach makes the change, with a fault.
func (c change) reach(t testing.TB, f *kerneltest.Fault, ns *pod) error {
	t.Helper()
	if c.to == nil {
		return dataplane(t).Through(f.Open).Remove(t.Context(), ns.Netns, "mesh-test")
	}
	return dataplane(t).Through(f.Open).Apply(t.Context(), ns.Netns, c.to)
}

// start returns a pod with the old plan in place.
func (c change) start(t testing.TB) (ns *pod, before string) {
	t.Helper()
	ns = newForeignPod(t)
	if c.from != nil {
		ns.apply(t, c.from)
	}
	return ns, ns.everything(t)
}

// smooth makes the change without a failure.
func (c change) smooth(t testing.TB) (calls *kerneltest.Fault, ns *pod) {
	t.Helper()
	calls = &kerneltest.Fault{}
	ns, _ = c.start(t)
	if err := c.reach(t, calls, ns); err != nil {
		t.Fatal(err)
	}
	return calls, ns
}

// TestEachFailure has each call to the kernel fail, and each message of each transaction.
// Afterwards the old plan or the new one is in place, complete and with nothing else; the new one
// when there is no error. The next Apply succeeds.
func TestEachFailure(t *testing.T) {
	t.Parallel()
	for _, c := range changes(t) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			smooth, ns := c.smooth(t)
			after := ns.everything(t)
			ns, before := c.start(t)
			for _, f := range kerneltest.Faults(smooth.Calls()) {
				err := c.reach(t, f, ns)
				now := ns.everything(t)
				switch {
				case err == nil && now != after:
					t.Errorf("%s: no error, and not the plan (-want +got):\n%s", f, cmp.Diff(after, now))
				case now == before:
					continue
				case now != after:
					t.Errorf("%s: %v: neither plan (-old +got):\n%s\n(-new +got):\n%s", f, err, cmp.Diff(before, now), cmp.Diff(after, now))
				}
				c.heal(t, ns, f, after)
				ns, before = c.start(t)
			}
			c.heal(t, ns, smooth, after)
			t.Logf("%d calls, %d ways to fail", len(smooth.Calls()), len(kerneltest.Faults(smooth.Calls())))
		})
	}
}

// heal makes the change once more, without a failure.
func (c change) heal(t testing.TB, ns *pod, fault *kerneltest.Fault, after string) {
	t.Helper()
	if err := c.reach(t, &kerneltest.Fault{}, ns); err != nil {
		t.Errorf("after %s: %v", fault, err)
	}
	if diff := cmp.Diff(after, ns.everything(t)); diff != "" {
		t.Errorf("after %s: the next time does not heal (-want +got):\n%s", fault, diff)
	}
}

// TestEachEnd has all calls fail from one on, as when the process ends there: whatever is in place
// of the two plans, the next Apply brings the new one. The rules are always those of one plan: the
// old one's until the new one's are in place.
func TestEachEnd(t *testing.T) {
	t.Parallel()
	for _, c := range changes(t) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			smooth, ns := c.smooth(t)
			after, rules := ns.everything(t), []string{ns.rules(t)}
			for at, met := range smooth.Calls() {
				if !met.Changes() {
					continue // the same as an end before the next change
				}
				f := &kerneltest.Fault{Kind: kerneltest.Unsent, At: at, Forever: true}
				ns, _ := c.start(t)
				rules := append(rules, ns.rules(t))
				if err := c.reach(t, f, ns); err == nil {
					t.Errorf("%s: no error", f)
				}
				if got := ns.rules(t); !slices.Contains(rules, got) {
					t.Errorf("%s: rules of neither plan:\n%s", f, got)
				}
				c.heal(t, ns, f, after)
			}
		})
	}
}

// TestAnotherAfterEachEnd ends a change before each call, as TestEachEnd does, and then makes
// another change than that: nothing is left of the first, and former values are restored.
func TestAnotherAfterEachEnd(t *testing.T) {
	t.Parallel()
	ttl := func(value int) *interception.Plan {
		return build(t, "mesh-test", func(b *interception.Builder) {
			b.Sysctl(interception.Sysctl{ID: "a.ttl", Key: "ipv4/ip_default_ttl", Value: value, Why: "a sysctl"})
		})
	}
	for name, test := range map[string]struct{ from, to, then *interception.Plan }{
		"another value, and then none": {ttl(65), ttl(66), nil},
		"routes without a record, and then a sysctl": {nil, build(t, "mesh-test", func(b *interception.Builder) {
			b.Address(interception.Address{ID: "an.address", Device: "lo", Prefix: netip.MustParsePrefix("fd00::1/128"), Why: "an address"})
			b.Route(interception.Route{ID: "a.route", Destination: netip.MustParsePrefix("192.0.2.0/24"), Device: "lo", Why: "a route"})
			b.PolicyRule(interception.PolicyRule{
				ID: "a.rule", Family: interception.IPv4, Mark: interception.WholeMark(1), Table: 7, Priority: 20001, Why: "a policy rule",
			})
		}), ttl(66)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, then := change{name, test.from, test.to}, change{name, nil, test.then}
			smooth, _ := first.smooth(t)
			_, fresh := then.smooth(t)
			after := fresh.everything(t)
			for at, met := range smooth.Calls() {
				if !met.Changes() {
					continue
				}
				f := &kerneltest.Fault{Kind: kerneltest.Unsent, At: at, Forever: true}
				ns, _ := first.start(t)
				if err := first.reach(t, f, ns); err == nil {
					t.Errorf("%s: no error", f)
				}
				then.heal(t, ns, f, after)
			}
		})
	}
}

// TestUndoFails has the rules refused and then a sysctl's former value, which the record still has
// afterwards: Remove restores it.
func TestUndoFails(t *testing.T) {
	t.Parallel()
	ns := newPod(t)
	before := ns.everything(t)
	transactions := 0
	failing := dataplane(t).Through(func(in *os.File) kernel.Namespace {
		return kerneltest.Interfere(kernel.Of(in), func(c kerneltest.Call, do func() error) error {
			if c.Transaction() {
				transactions++
			}
			if c.Transaction() && transactions == 2 || c.What == "write ipv4/ip_default_ttl 64" {
				return kerneltest.ErrInjected
			}
			return do()
		})
	})
	err := failing.Apply(t.Context(), ns.Netns, build(t, "mesh-test", func(b *interception.Builder) {
		b.Sysctl(interception.Sysctl{ID: "a.ttl", Key: "ipv4/ip_default_ttl", Value: 65, Why: "a sysctl"})
		b.NAT("output").Entry(interception.Output, interception.Match{L4: interception.TCP()}, "connections from the pod")
	}))
	if err == nil || !strings.Contains(err.Error(), "undo a.ttl") {
		t.Errorf("got %v, want an error about what was not undone", err)
	}
	if got := ns.sysctl(t, "ipv4/ip_default_ttl"); got != "65" {
		t.Fatalf("the sysctl is %s, so the test has not reached what it is about", got)
	}
	if err := dataplane(t).Remove(t.Context(), ns.Netns, "mesh-test"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, ns.everything(t)); diff != "" {
		t.Errorf("not restored (-before +after):\n%s", diff)
	}
}

// TestLostRefusal has another program change rules just before the plan's transaction, which the
// kernel then refuses, and the refusal gets lost. The table that has the record is not taken for
// the plan's.
func TestLostRefusal(t *testing.T) {
	t.Parallel()
	smooth, last := &kerneltest.Fault{}, 0
	plan := build(t, "mesh-test", func(b *interception.Builder) {
		b.Sysctl(interception.Sysctl{ID: "a.ttl", Key: "ipv4/ip_default_ttl", Value: 65, Why: "a sysctl"})
		b.NAT("output").Entry(interception.Output, interception.Match{L4: interception.TCP()}, "connections from the pod")
	})
	fresh := newPod(t)
	if err := dataplane(t).Through(smooth.Open).Apply(t.Context(), fresh.Netns, plan); err != nil {
		t.Fatal(err)
	}
	for at, met := range smooth.Calls() {
		if met.Transaction() {
			last = at
		}
	}
	ns, calls := newPod(t), 0
	before := ns.everything(t)
	lost := &kerneltest.Fault{Kind: kerneltest.Lost, At: last}
	err := dataplane(t).Through(func(in *os.File) kernel.Namespace {
		return kerneltest.Interfere(lost.Open(in), func(_ kerneltest.Call, do func() error) error {
			if calls++; calls == last+1 {
				ns.load(t, "add table inet other\ndelete table inet other")
			}
			return do()
		})
	}).Apply(t.Context(), ns.Netns, plan)
	if calls <= last {
		t.Fatalf("%d calls, so the test has not reached what it is about", calls)
	}
	want := fresh.everything(t)
	if err != nil {
		want = before
	}
	if diff := cmp.Diff(want, ns.everything(t)); diff != "" {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
}

// rules returns nft's listing of the owner's rules without the ledger, which decides nothing.
func (p *pod) rules(t testing.TB) string {
	t.Helper()
	_, text, _ := strings.Cut(p.ruleset(t), "table inet mesh-test {\n")
	text, _, _ = strings.Cut(text, "\n}\n")
	before, ledger, there := strings.Cut(text, "\tset ledger {\n")
	if _, behind, closed := strings.Cut(ledger, "\n\t}"); there && closed {
		text = before + behind
	}
	return strings.TrimSpace(text)
}
