// SPDX-License-Identifier: Apache-2.0

package dataplanetest_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sample"
)

// match returns random conditions that packets between client and server may meet.
func match(c sample.Choices, hook interception.Hook) interception.Match {
	var m interception.Match
	if c(3) == 0 {
		m.L4 = interception.UDP().To(interception.Ports(9000))
	}
	if c(3) == 0 && hook != interception.Postrouting {
		m.In = interception.Is(interception.Interfaces(sample.Pick(c, interception.Interface("c0"), "c1", "s0", "s1")))
	}
	if c(3) == 0 && hook != interception.Prerouting {
		m.Out = interception.Is(interception.Interfaces(sample.Pick(c, interception.Interface("c0"), "c1", "s0", "s1")))
	}
	if c(4) == 0 {
		m.Mark = interception.Is(interception.MarkBits{Value: interception.Mark(1 + c(2)), Mask: 3})
	}
	if c(5) == 0 {
		m.Direction = sample.Pick(c, interception.DirectionOriginal, interception.DirectionReply)
	}
	if c(5) == 0 {
		m.Src = interception.Is(interception.Prefixes(netip.MustParsePrefix(sample.Pick(c, "10.1.0.0/30", "10.2.0.0/30", "10.3.0.0/30"))))
	}
	return m
}

// randomPlan returns rules, routes, policy rules and settings for the router.
func randomPlan(t *testing.T, c sample.Choices) *interception.Plan {
	t.Helper()
	plan, err := interception.Build("random-router", func(b *interception.Builder) {
		randomSettings(c, b)
		randomRoutes(c, b)
		randomRules(c, b)
		randomMarks(c, b)
		randomFilter(c, b)
		randomTranslations(c, b)
	})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func randomMarks(c sample.Choices, b *interception.Builder) {
	marks := b.Mangle("marks")
	hook := sample.Pick(c, interception.Prerouting, interception.Prerouting, interception.Forward)
	marks.Entry(hook, interception.Match{}, "why")
	for i := range c(4) {
		mark := interception.MarkBits{Value: interception.Mark(1 + c(2)), Mask: 3}
		m := match(c, hook)
		id := interception.RuleID(fmt.Sprintf("mark.%d", i))
		switch c(3) {
		case 0:
			marks.Do(id, m, interception.SetConnMark{Mark: mark}, "why")
		case 1:
			marks.Do(id, m, interception.RestoreMark{}, "why")
		default:
			marks.Do(id, m, interception.SetMark{Mark: mark}, "why")
		}
	}
}

func randomFilter(c sample.Choices, b *interception.Builder) {
	filter := b.Filter("filter")
	filter.Entry(interception.Forward, interception.Match{}, "why")
	for i := range c(3) {
		m, id := match(c, interception.Forward), interception.RuleID(fmt.Sprintf("filter.%d", i))
		if c(2) == 0 {
			filter.Do(id, m, interception.Accept{}, "why")
		} else {
			filter.Do(id, m, interception.Drop{}, "why")
		}
	}
}

func randomTranslations(c sample.Choices, b *interception.Builder) {
	to := b.NAT("destinations")
	to.Entry(interception.Prerouting, interception.Match{}, "why")
	if c(2) == 0 {
		m := match(c, interception.Prerouting)
		m.L4, m.Family = interception.UDP(), interception.IPv4
		to.Do("dnat", m, interception.DNATTo{Addr: netip.MustParseAddr(sample.Pick(c, "10.3.0.2", "10.4.0.2", "198.51.100.7"))}, "why")
	}
	from := b.NAT("sources")
	from.Entry(interception.Postrouting, interception.Match{}, "why")
	if c(2) == 0 {
		m := match(c, interception.Postrouting)
		m.L4, m.Family = interception.UDP(), interception.IPv4
		from.Do("snat", m, interception.SNATTo{Addr: netip.MustParseAddr(sample.Pick(c, "10.3.0.1", "10.4.0.1"))}, "why")
	}
}

func randomSettings(c sample.Choices, b *interception.Builder) {
	for _, key := range []string{"all/rp_filter", "c0/rp_filter", "c1/rp_filter", "s1/rp_filter"} {
		if c(4) == 0 {
			b.Sysctl(interception.Sysctl{ID: interception.RuleID("s." + key[:2]), Key: "ipv4/conf/" + key, Value: c(3), Why: "why"})
		}
	}
	if c(4) == 0 {
		b.Sysctl(interception.Sysctl{ID: "valid", Key: "ipv4/conf/all/src_valid_mark", Value: 1, Why: "why"})
	}
	if c(10) > 0 {
		b.Sysctl(interception.Sysctl{ID: "forward", Key: "ipv4/ip_forward", Value: 1, Why: "why"})
	}
}

func randomRoutes(c sample.Choices, b *interception.Builder) {
	for i := range c(3) {
		table := interception.RoutingTable(sample.Pick(c, 7, 8))
		route := interception.Route{
			ID: interception.RuleID(fmt.Sprintf("route.%d", i)), Table: table, Why: "why",
			Destination: netip.MustParsePrefix(sample.Pick(c, "198.51.100.0/24", "0.0.0.0/0", "10.1.0.2/32", "10.2.0.2/32", "198.51.100.7/32")),
			Metric:      uint32(i + 1),
		}
		switch c(5) {
		case 0:
			route.Type = interception.RouteUnreachable
		case 1:
			route.Type = interception.RouteBlackhole
		case 2:
			route.Type = interception.RouteThrow
		default:
			route.Device, route.Gateway = "s1", netip.MustParseAddr("10.4.0.2")
			if c(3) == 0 {
				route.Device, route.Gateway = "c1", netip.MustParseAddr("10.2.0.2")
			}
		}
		b.Route(route)
	}
}

func randomRules(c sample.Choices, b *interception.Builder) {
	for i := range c(3) {
		rule := interception.PolicyRule{
			ID: interception.RuleID(fmt.Sprintf("rule.%d", i)), Family: interception.IPv4, Priority: uint32(100 + 10*i), Table: interception.RoutingTable(7 + c(2)),
			Mark: interception.MarkBits{Value: interception.Mark(1 + c(2)), Mask: 3}, Why: "why",
		}
		if c(4) == 0 {
			rule.In = sample.Pick(c, interception.Interface("c0"), "c1", "s0")
		}
		if c(5) == 0 {
			rule.Table, rule.Goto = 0, 32766
		}
		b.PolicyRule(rule)
	}
}
