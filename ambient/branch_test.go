// SPDX-License-Identifier: Apache-2.0

package ambient

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/proof"
	"github.com/meshcni/meshcni/interception/trace"
)

func branches() []Branch {
	return []Branch{
		{Pod: netip.MustParseAddr("192.0.2.77"), Link: "vlan1a2b", Table: 101, Priority: 10},
		{Pod: netip.MustParseAddr("2001:db8::77"), Link: "vlan1a2b", Table: 101, Priority: 10},
	}
}

// branchNode returns a node with a pod that the network's plugin routes by a table of its own.
func branchNode(t *testing.T, plan *interception.Plan) trace.World {
	t.Helper()
	plugin, err := interception.Build("other-network", func(b *interception.Builder) {
		for _, to := range []string{"192.0.2.77/32", "2001:db8::77/128"} {
			prefix := netip.MustParsePrefix(to)
			family := interception.FamilyOf(prefix.Addr())
			b.Route(interception.Route{ID: id("pod", family), Destination: prefix, Device: "vlan1a2b", Table: 101, Why: "pod"})
			b.PolicyRule(interception.PolicyRule{ID: id("in", family), Family: family, In: "vlan1a2b", Table: 101, Priority: 10, Why: "pod"})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	world := node(t, plan)
	host := &world.Namespaces[0]
	host.Plans = append(host.Plans, plugin)
	host.Links = append(host.Links, trace.Link{Name: "vlan1a2b"})
	host.LiveSets = nil
	for _, b := range branches() {
		host.LiveSets = append(host.LiveSets, trace.LiveSet{
			Owner: plan.Owner, Name: ProbeSet(interception.FamilyOf(b.Pod)),
			Members: interception.Prefixes(netip.PrefixFrom(b.Pod, b.Pod.BitLen())),
		})
	}
	return world
}

func TestBranchWalks(t *testing.T) {
	t.Parallel()
	dual := interception.Facts{IPv6: true, LoopbackIPv6: true}
	with, err := HostPlan(IstioNumbers(), dual, "test-ambient", branches()...)
	if err != nil {
		t.Fatal(err)
	}
	without := hostPlan(t, IstioNumbers(), dual)
	for _, test := range []struct {
		plan         *interception.Plan
		packet, link interception.Interface
		from         string
	}{
		{with, "tcp uid 0 gid 0 > 192.0.2.77:8080", "vlan1a2b", "169.254.7.127"},
		{with, "tcp uid 0 gid 0 > [2001:db8::77]:8080", "vlan1a2b", "fd16:9254:7127:1337:ffff:ffff:ffff:ffff"},
		{with, "tcp uid 0 gid 0 > 192.0.2.78:8080", "eth0", "192.0.2.1"},
		{without, "tcp uid 0 gid 0 > 192.0.2.77:8080", "eth0", "169.254.7.127"}, // lost: the pod is not there
		{without, "tcp uid 0 gid 0 > [2001:db8::77]:8080", "eth0", "fd16:9254:7127:1337:ffff:ffff:ffff:ffff"},
	} {
		packet, err := trace.ParsePacket(string(test.packet))
		if err != nil {
			t.Fatal(err)
		}
		outcome, err := trace.Trace(branchNode(t, test.plan), packet)
		if err != nil || outcome.Verdict != trace.Sent || outcome.Link != test.link || outcome.Header.Src.Addr().String() != test.from {
			t.Errorf("%s: %v, want that it leaves by %s from %s\n%s", test.packet, err, test.link, test.from, outcome.Report())
		}
	}
}

func TestBranchRules(t *testing.T) {
	t.Parallel()
	const v4 = `policy rule v4 priority 9 in vlan1a2b table 255
policy rule v4 priority 512 to 192.0.2.77/32 table 101
`
	for name, test := range map[string]struct {
		facts interception.Facts
		want  string
	}{
		"v4": {interception.Facts{}, v4},
		"dual": {interception.Facts{IPv6: true, LoopbackIPv6: true}, v4 + `policy rule v6 priority 9 in vlan1a2b table 255
policy rule v6 priority 512 to 2001:db8::77/128 table 101
`},
	} {
		plan, err := HostPlan(IstioNumbers(), test.facts, "test-ambient", branches()...)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for line := range strings.Lines(plan.String()) {
			if text, isRule := strings.CutPrefix(strings.TrimSpace(line), "policy rule"); isRule {
				text, _, _ = strings.Cut(text, "  #")
				got += "policy rule" + text + "\n"
			}
		}
		if got != test.want {
			t.Errorf("%s: the policy rules are\n%swant\n%s\n%s", name, got, test.want, plan)
		}
		if findings, err := proof.Lint(plan, proof.Options{}); err != nil || len(findings) > 0 {
			t.Errorf("%s: %v, %v", name, findings, err)
		}
	}
}

func TestBranchRefused(t *testing.T) {
	t.Parallel()
	valid := branches()[0]
	change := func(f func(*Branch)) []Branch {
		b := valid
		f(&b)
		return []Branch{b}
	}
	for want, of := range map[string][]Branch{
		"give the pod's plain address":                  change(func(b *Branch) { b.Pod = netip.MustParseAddr("::ffff:192.0.2.77") }),
		"table 254 is not one of the pod's own":         change(func(b *Branch) { b.Table = 254 }),
		"table 255 is not one of the pod's own":         change(func(b *Branch) { b.Table = 255 }),
		"table 0 is not one of the pod's own":           change(func(b *Branch) { b.Table = 0 }),
		"no priority precedes 1":                        change(func(b *Branch) { b.Priority = 1 }),
		`pod 192.0.2.77 by link "vlan1a2b": the pod is`: {valid, valid},
		"pod 192.0.2.77 has the same link":              {valid, change(func(b *Branch) { b.Pod = b.Pod.Next() })[0]},
	} {
		if plan, err := HostPlan(IstioNumbers(), interception.Facts{}, "test-ambient", of...); !errors.Is(err, ErrBranch) || !strings.Contains(err.Error(), want) || plan != nil {
			t.Errorf("%v, want an ErrBranch that says: %s", err, want)
		}
	}
	if _, err := HostPlan(IstioNumbers(), interception.Facts{}, "test-ambient", change(func(b *Branch) { b.Link = "" })...); !errors.Is(err, interception.ErrPlan) {
		t.Errorf("no link: %v, want ErrPlan", err)
	}
	if n := IstioNumbers(); n.BranchPriority != 512 {
		t.Errorf("priority %d, want Istio's", n.BranchPriority)
	}
}
