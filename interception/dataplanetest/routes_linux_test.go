// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"net/netip"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/interception/trace"
)

// planRoutes adds to table 100, to which mark 1 leads, a route of each form, for two families. Mark
// 2 passes over a policy rule, and any packet meets the last one.
func planRoutes(b *interception.Builder) {
	for _, of := range []struct {
		family                  interception.Family
		all, refused, discarded string
		thrown, nobody          string
		gateway, source         string
	}{
		{interception.IPv4, "0.0.0.0/0", "198.51.100.1/32", "198.51.100.2/32", "198.51.100.3/32", "198.51.100.9/32", "169.254.1.1", "10.244.1.11"},
		{interception.IPv6, "::/0", "2001:db8:7::1/128", "2001:db8:7::2/128", "2001:db8:7::3/128", "2001:db8:7::9/128", "fe80::1", "fd00:10:244:1::a"},
	} {
		id := interception.RuleID(of.family.String())
		route := func(name interception.RuleID, destination string, r interception.Route) {
			r.ID, r.Destination, r.Table, r.Why = name+"."+id, netip.MustParsePrefix(destination), 100, "test"
			b.Route(r)
		}
		gateway := netip.MustParseAddr(of.gateway)
		route("refused", of.refused, interception.Route{Type: interception.RouteUnreachable})
		route("discarded", of.discarded, interception.Route{Type: interception.RouteBlackhole})
		route("thrown", of.thrown, interception.Route{Type: interception.RouteThrow})
		route("best", of.all, interception.Route{
			Device: "eth0", Gateway: gateway, OnLink: true, Source: netip.MustParseAddr(of.source), Metric: 5,
		})
		route("worse", of.all, interception.Route{Type: interception.RouteUnreachable, Metric: 6})
		b.PolicyRule(interception.PolicyRule{ID: "rule." + id, Family: of.family, Mark: interception.WholeMark(1), Table: 100, Priority: 50, Why: "test"})
		both := interception.MarkBits{Value: 2, Mask: 2}
		for _, r := range []interception.PolicyRule{
			{ID: "goes.", Mark: interception.WholeMark(2), Goto: 32766, Priority: 40},
			{ID: "skipped.", Mark: both, Table: 100, Priority: 51},
			{ID: "any.", Any: true, Table: 101, Priority: 60},
		} {
			r.ID, r.Family, r.Why = r.ID+id, of.family, "test"
			b.PolicyRule(r)
		}
		b.Route(interception.Route{
			ID: "nobody." + id, Type: interception.RouteUnreachable, Destination: netip.MustParsePrefix(of.nobody), Table: 101, Why: "test",
		})
		marks := b.Mangle(interception.ChainName("marks-" + of.family.String()))
		marks.Entry(interception.Output, interception.Match{Family: of.family, L4: interception.UDP().To(interception.Ports(99))}, "test")
		marks.Do("mark."+id, interception.Match{}, interception.SetMark{Mark: interception.WholeMark(1)}, "test")
	}
}

// TestFormsOfRoutes sends packets by routes and policy rules of each form: package trace predicts
// what becomes of them, also of those that a mark leads there after their first route.
func TestFormsOfRoutes(t *testing.T) {
	t.Parallel()
	pod := NewPod(t, PodOptions{Addresses: []netip.Addr{
		netip.MustParseAddr("10.244.1.10"), netip.MustParseAddr("10.244.1.11"), netip.MustParseAddr("fd00:10:244:1::a"), netip.MustParseAddr("fd00:10:244:1::b"),
	}})
	plan, err := interception.Build("test-routes", planRoutes)
	if err != nil {
		t.Fatal(err)
	}
	d, err := nftables.New(nftables.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := pod.Apply(t.Context(), d, plan); err != nil {
		t.Fatal(err)
	}
	world, err := pod.World(plan)
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]struct {
		verdict Verdict
		peer    string
	}{
		"tcp uid 0 gid 0 mark 0x1 > 198.51.100.1:80":    {Refused, ""},
		"tcp uid 0 gid 0 mark 0x1 > 198.51.100.2:80":    {Refused, ""},
		"tcp uid 0 gid 0 mark 0x1 > 198.51.100.3:80":    {Accepted, "10.244.1.10"},
		"tcp uid 0 gid 0 mark 0x1 > 198.51.100.4:80":    {Accepted, "10.244.1.11"},
		"tcp uid 0 gid 0 > 198.51.100.1:80":             {Accepted, "10.244.1.10"},
		"udp uid 0 gid 0 > 198.51.100.1:99":             {Refused, ""},
		"tcp uid 0 gid 0 mark 0x1 > [2001:db8:7::1]:80": {Refused, ""},
		"tcp uid 0 gid 0 mark 0x1 > [2001:db8:7::2]:80": {Refused, ""},
		"tcp uid 0 gid 0 mark 0x1 > [2001:db8:7::3]:80": {Accepted, "fd00:10:244:1::b"},
		"tcp uid 0 gid 0 mark 0x1 > [2001:db8:7::4]:80": {Accepted, "fd00:10:244:1::a"},
		"tcp uid 0 gid 0 > [2001:db8:7::1]:80":          {Accepted, "fd00:10:244:1::b"},
		"udp uid 0 gid 0 > [2001:db8:7::1]:99":          {Refused, ""},
		"tcp uid 0 gid 0 mark 0x2 > 198.51.100.1:80":    {Accepted, "10.244.1.10"},
		"tcp uid 0 gid 0 mark 0x6 > 198.51.100.1:80":    {Refused, ""},
		"tcp uid 0 gid 0 > 198.51.100.9:80":             {Refused, ""},
		"tcp uid 0 gid 0 mark 0x2 > [2001:db8:7::1]:80": {Accepted, "fd00:10:244:1::b"},
		"tcp uid 0 gid 0 mark 0x6 > [2001:db8:7::1]:80": {Refused, ""},
		"tcp uid 0 gid 0 > [2001:db8:7::9]:80":          {Refused, ""},
	} {
		packet, err := trace.ParsePacket(line)
		if err != nil {
			t.Fatal(err)
		}
		c, err := pod.Compare(t.Context(), world, packet)
		switch {
		case err != nil || c.Disagreement != "" || c.Observed.Verdict != want.verdict:
			t.Errorf("%s: %v, want %s\n%s", line, err, want.verdict, c.Report())
		case want.peer != "" && c.Observed.Peer.Addr().String() != want.peer:
			t.Errorf("%s: from %s, want %s", line, c.Observed.Peer, want.peer)
		}
	}
}
