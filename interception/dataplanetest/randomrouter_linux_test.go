// SPDX-License-Identifier: Apache-2.0

package dataplanetest_test

import (
	"fmt"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sample"
)

// match returns random conditions that packets between client and server may meet.
func (k kindOfRouter) match(c sample.Choices, hook interception.Hook) interception.Match {
	var m interception.Match
	if c(3) == 0 {
		m.L4 = sample.Pick(c, interception.UDP(), interception.TCP()).To(interception.Ports(routedPort))
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
		m.Src = interception.Is(interception.Prefixes(k.prefix(sample.Pick(c, "10.1.0.0/30", "10.2.0.0/30", "10.3.0.0/30"))))
	}
	return m
}

// randomPlan returns rules, routes, policy rules and settings for the router.
func (k kindOfRouter) randomPlan(t *testing.T, c sample.Choices) *interception.Plan {
	t.Helper()
	plan, err := interception.Build("random-router", func(b *interception.Builder) {
		k.randomSettings(c, b)
		k.randomRoutes(c, b)
		k.randomRules(c, b)
		k.randomMarks(c, b)
		k.randomFilter(c, b)
		k.randomTranslations(c, b)
	})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func (k kindOfRouter) randomMarks(c sample.Choices, b *interception.Builder) {
	marks := b.Mangle("marks")
	hook := sample.Pick(c, interception.Prerouting, interception.Prerouting, interception.Forward)
	marks.Entry(hook, interception.Match{}, "why")
	for i := range c(4) {
		mark := interception.MarkBits{Value: interception.Mark(1 + c(2)), Mask: 3}
		m := k.match(c, hook)
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

func (k kindOfRouter) randomFilter(c sample.Choices, b *interception.Builder) {
	filter := b.Filter("filter")
	filter.Entry(interception.Forward, interception.Match{}, "why")
	for i := range c(3) {
		m, id := k.match(c, interception.Forward), interception.RuleID(fmt.Sprintf("filter.%d", i))
		if c(2) == 0 {
			filter.Do(id, m, interception.Accept{}, "why")
		} else {
			filter.Do(id, m, interception.Drop{}, "why")
		}
	}
}

func (k kindOfRouter) randomTranslations(c sample.Choices, b *interception.Builder) {
	to := b.NAT("destinations")
	to.Entry(interception.Prerouting, interception.Match{}, "why")
	if c(2) == 0 {
		m := k.match(c, interception.Prerouting)
		m.L4, m.Family = sample.Pick(c, interception.L4{}, interception.UDP(), interception.TCP()), k.family
		to.Do("dnat", m, interception.DNATTo{Addr: k.addr(sample.Pick(c, "10.3.0.2", "10.4.0.2", "198.51.100.7", "198.51.100.8"))}, "why")
	}
	from := b.NAT("sources")
	from.Entry(interception.Postrouting, interception.Match{}, "why")
	if c(2) == 0 {
		m := k.match(c, interception.Postrouting)
		m.L4, m.Family = sample.Pick(c, interception.L4{}, interception.UDP(), interception.TCP()), k.family
		from.Do("snat", m, interception.SNATTo{Addr: k.addr(sample.Pick(c, "10.3.0.1", "10.4.0.1"))}, "why")
	}
}

func (k kindOfRouter) randomSettings(c sample.Choices, b *interception.Builder) {
	if c(10) > 0 {
		key := "ipv4/ip_forward"
		if k.family == interception.IPv6 {
			key = "ipv6/conf/all/forwarding"
		}
		b.Sysctl(interception.Sysctl{ID: "forward", Key: key, Value: 1, Why: "why"})
	}
	if k.family == interception.IPv6 {
		return // the others are about IPv4
	}
	for _, key := range []string{"all/rp_filter", "c0/rp_filter", "c1/rp_filter", "s1/rp_filter"} {
		if c(4) == 0 {
			b.Sysctl(interception.Sysctl{ID: interception.RuleID("s." + key[:2]), Key: "ipv4/conf/" + key, Value: c(3), Why: "why"})
		}
	}
	if c(4) == 0 {
		b.Sysctl(interception.Sysctl{ID: "valid", Key: "ipv4/conf/all/src_valid_mark", Value: 1, Why: "why"})
	}
}

func (k kindOfRouter) randomRoutes(c sample.Choices, b *interception.Builder) {
	for i := range c(3) {
		table := interception.RoutingTable(sample.Pick(c, 7, 8))
		route := interception.Route{
			ID: interception.RuleID(fmt.Sprintf("route.%d", i)), Table: table, Why: "why",
			Destination: k.prefix(sample.Pick(c, "198.51.100.0/24", "0.0.0.0/0", "10.1.0.2/32", "10.2.0.2/32", "198.51.100.7/32", "198.51.100.8/32")),
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
			route.Device, route.Gateway = "s1", k.addr("10.4.0.2")
			if c(3) == 0 {
				route.Device, route.Gateway = "c1", k.addr("10.2.0.2")
			}
		}
		b.Route(route)
	}
}

func (k kindOfRouter) randomRules(c sample.Choices, b *interception.Builder) {
	for i := range c(3) {
		rule := interception.PolicyRule{
			ID: interception.RuleID(fmt.Sprintf("rule.%d", i)), Family: k.family, Priority: uint32(100 + 10*i), Table: interception.RoutingTable(7 + c(2)),
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
