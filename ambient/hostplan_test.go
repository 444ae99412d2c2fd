// SPDX-License-Identifier: Apache-2.0

package ambient

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/proof"
	"github.com/meshcni/meshcni/interception/trace"
)

func hostPlan(t *testing.T, n Numbers, f interception.Facts) *interception.Plan {
	t.Helper()
	plan, err := HostPlan(n, f, "test-ambient")
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// node returns the world of a node with one enrolled pod and one that is not. The network's plugin
// translates what leaves for another network, as many do.
func node(t *testing.T, plan *interception.Plan) trace.World {
	t.Helper()
	network, err := interception.Build("other-network", func(b *interception.Builder) {
		c := b.NAT("masquerade")
		c.Entry(interception.Postrouting, interception.Match{}, "all")
		c.Do("masquerade", interception.Match{Family: interception.IPv4, L4: interception.TCP()},
			interception.SNATTo{Addr: netip.MustParseAddr("192.0.2.1")}, "masquerade")
	})
	if err != nil {
		t.Fatal(err)
	}
	prefixes := func(texts ...string) []netip.Prefix {
		var all []netip.Prefix
		for _, text := range texts {
			all = append(all, netip.MustParsePrefix(text))
		}
		return all
	}
	set := func(family interception.Family, member string) trace.LiveSet {
		return trace.LiveSet{Owner: plan.Owner, Name: ProbeSet(family), Members: interception.Prefixes(netip.MustParsePrefix(member))}
	}
	return trace.World{Namespaces: []trace.Namespace{{
		Name: "host", Forwards: true, Plans: []*interception.Plan{network, plan},
		Links: []trace.Link{
			trace.Loopback(),
			{Name: "eth0", Addresses: prefixes("192.0.2.1/24", "2001:db8::1/64")},
			{Name: "cni0", Addresses: prefixes("10.244.0.1/24", "fd00:10:244::1/64")},
		},
		LiveSets: []trace.LiveSet{set(interception.IPv4, "10.244.0.2/32"), set(interception.IPv6, "fd00:10:244::2/128")},
	}}}
}

func TestHostPlanWalks(t *testing.T) {
	t.Parallel()
	world := node(t, hostPlan(t, IstioNumbers(), interception.Facts{IPv6: true, LoopbackIPv6: true}))
	for name, test := range map[string]struct{ packet, from string }{
		"a probe":                      {"tcp uid 0 gid 0 > 10.244.0.2:8080", "169.254.7.127"},
		"a probe, v6":                  {"tcp uid 0 gid 0 > [fd00:10:244::2]:8080", "fd16:9254:7127:1337:ffff:ffff:ffff:ffff"},
		"another program of the node":  {"tcp uid 1000 gid 1000 > 10.244.0.2:8080", "169.254.7.127"},
		"a probe of another pod":       {"tcp uid 0 gid 0 > 10.244.0.3:8080", "192.0.2.1"},
		"a probe of another pod, v6":   {"tcp uid 0 gid 0 > [fd00:10:244::3]:8080", "fd00:10:244::1"},
		"UDP":                          {"udp uid 0 gid 0 > 10.244.0.2:53", "10.244.0.1"},
		"from a pod of another node":   {"tcp in eth0 10.244.1.7:40000 > 10.244.0.2:8080", "192.0.2.1"},
		"from a pod of this node, v6":  {"tcp in cni0 [fd00:10:244::3]:40000 > [fd00:10:244::2]:8080", "fd00:10:244::3"},
		"from a pod of this node, UDP": {"udp in cni0 10.244.0.3:40000 > 10.244.0.2:53", "10.244.0.3"},
	} {
		packet, err := trace.ParsePacket(test.packet)
		if err != nil {
			t.Fatal(err)
		}
		outcome, err := trace.Trace(world, packet)
		if err != nil || outcome.Verdict != trace.Sent || outcome.Link != "cni0" || outcome.Header.Src.Addr().String() != test.from {
			t.Errorf("%s: %v, want that it goes to the pod from %s\n%s", name, err, test.from, outcome.Report())
		}
	}
}

// TestProbesReachTheApplication follows a probe from the node into the pod.
func TestProbesReachTheApplication(t *testing.T) {
	t.Parallel()
	numbers := IstioNumbers()
	for _, own := range []string{"192.0.2.1", "2001:db8::1"} { // where the datapath bypasses the rules of the host
		numbers.Probes = append(numbers.Probes, netip.MustParseAddr(own))
	}
	plan, err := PodPlan(DefaultOverrides(false), numbers, interception.Facts{IPv6: true, LoopbackIPv6: true}, "test-ambient")
	if err != nil {
		t.Fatal(err)
	}
	world := pod(plan)
	for _, line := range []string{
		"tcp in eth0 169.254.7.127:40000 > 10.244.0.2:8080", "tcp in eth0 192.0.2.1:40000 > 10.244.0.2:8080",
		"tcp in eth0 [fd16:9254:7127:1337:ffff:ffff:ffff:ffff]:40000 > [fd00:10:244::2]:8080",
		"tcp in eth0 [2001:db8::1]:40000 > [fd00:10:244::2]:8080",
	} {
		if got, outcome := ends(t, world, line); got != "application" {
			t.Errorf("%s ends at %s\n%s", line, got, outcome.Report())
		}
	}
	if got, _ := ends(t, world, "tcp in eth0 192.0.2.2:40000 > 10.244.0.2:8080"); got != "inbound" {
		t.Errorf("what is no probe ends at %s", got)
	}
}

func TestHostPlan(t *testing.T) {
	t.Parallel()
	onlyV6 := IstioNumbers()
	onlyV6.Probes = onlyV6.Probes[1:]
	for name, test := range map[string]struct {
		numbers Numbers
		facts   interception.Facts
		sets    int
	}{
		"dual":                        {IstioNumbers(), interception.Facts{IPv6: true, LoopbackIPv6: true}, 2},
		"no IPv6":                     {IstioNumbers(), interception.Facts{}, 1},
		"no IPv4 address":             {onlyV6, interception.Facts{IPv6: true, LoopbackIPv6: true}, 1},
		"no IPv4 address and no IPv6": {onlyV6, interception.Facts{}, 0},
	} {
		plan := hostPlan(t, test.numbers, test.facts)
		sets := 0
		for set := range interception.ObjectsOf[interception.Set](plan) {
			if sets++; !set.Live || set.Name != ProbeSet(set.Family) {
				t.Errorf("%s: set %s, live %v", name, set.Name, set.Live)
			}
		}
		rules := 0
		for range plan.Rules() {
			rules++
		}
		if sets != test.sets || rules != test.sets {
			t.Errorf("%s: %d sets and %d rules, want %d\n%s", name, sets, rules, test.sets, plan)
		}
		if findings, err := proof.Lint(plan, proof.Options{}); test.sets > 0 && (err != nil || len(findings) > 0) {
			t.Errorf("%s: %v, %v\n%s", name, findings, err, plan)
		}
	}
	if plan, err := HostPlan(Numbers{}, interception.Facts{}, "test-ambient"); !errors.Is(err, ErrNumbers) || plan != nil {
		t.Errorf("no numbers: %v, want ErrNumbers", err)
	}
}
