// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"fmt"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// TestGoto has policy rules that lead to others. Table 100 leads to net1, table 200 refuses, and
// the main table leads to eth0.
func TestGoto(t *testing.T) {
	t.Parallel()
	const dst, dst6 = "198.51.100.1:80", "[2001:db8::1]:80"
	rule := func(priority uint32, table interception.RoutingTable, to uint32) interception.PolicyRule {
		return interception.PolicyRule{Family: interception.IPv4, Any: true, Priority: priority, Table: table, Goto: to}
	}
	six := func(r interception.PolicyRule) interception.PolicyRule {
		r.Family = interception.IPv6
		return r
	}
	byMark := func(r interception.PolicyRule) interception.PolicyRule {
		r.Any, r.Mark = false, whole(1)
		return r
	}
	for name, c := range map[string]struct {
		rules     []interception.PolicyRule
		dst, want string
	}{
		"any packet":                  {[]interception.PolicyRule{rule(50, 100, 0)}, dst, "sent by net1 to " + dst},
		"any packet of a family":      {[]interception.PolicyRule{rule(50, 200, 0)}, dst6, "sent by eth0 to " + dst6},
		"to the main table":           {[]interception.PolicyRule{rule(40, 0, 32766), rule(50, 200, 0)}, dst, "sent by eth0 to " + dst},
		"to the default table":        {[]interception.PolicyRule{rule(40, 0, 32767)}, dst, "unroutable: no link leads to the destination"},
		"to the default table, v6":    {[]interception.PolicyRule{six(rule(40, 0, 32767))}, dst6, "sent by eth0 to " + dst6},
		"to a rule":                   {[]interception.PolicyRule{rule(40, 0, 60), rule(50, 200, 0), rule(60, 100, 0)}, dst, "sent by net1 to " + dst},
		"nowhere":                     {[]interception.PolicyRule{rule(40, 0, 55), rule(50, 100, 0), rule(60, 200, 0)}, dst, "sent by net1 to " + dst},
		"to a rule of another family": {[]interception.PolicyRule{rule(40, 0, 60), rule(50, 100, 0), six(rule(60, 200, 0))}, dst, "sent by net1 to " + dst},
		"to a rule, and on":           {[]interception.PolicyRule{rule(40, 0, 50), rule(45, 200, 0), byMark(rule(50, 200, 0)), rule(60, 100, 0)}, dst, "sent by net1 to " + dst},
		"to the first of a priority":  {[]interception.PolicyRule{rule(40, 0, 50), rule(50, 100, 0), rule(50, 200, 0)}, dst, "sent by net1 to " + dst},
		"another mark":                {[]interception.PolicyRule{byMark(rule(40, 0, 32766)), rule(50, 100, 0)}, dst, "sent by net1 to " + dst},
		"twice":                       {[]interception.PolicyRule{rule(40, 0, 50), rule(45, 200, 0), rule(50, 0, 60), rule(55, 200, 0), rule(60, 100, 0)}, dst, "sent by net1 to " + dst},
	} {
		plan := build(t, func(b *interception.Builder) {
			b.Link(interception.Link{ID: "link", Name: "net1", Why: "why"})
			b.Address(interception.Address{ID: "address", Device: "net1", Prefix: addresses("10.77.0.2/24")[0], Why: "why"})
			b.Route(interception.Route{ID: "to.net1", Destination: addresses("0.0.0.0/0")[0], Device: "net1", Table: 100, Why: "why"})
			b.Route(interception.Route{ID: "refuse", Type: interception.RouteUnreachable, Destination: addresses("0.0.0.0/0")[0], Table: 200, Why: "why"})
			for i, r := range c.rules {
				r.ID, r.Why = interception.RuleID(fmt.Sprintf("rule.%d", i)), "why"
				b.PolicyRule(r)
			}
		})
		if got := traced(t, pod(plan), connect(application, c.dst)).String(); got != c.want+"; no rule decided" {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

// TestEqualPriorities has two plans with rules of one priority: the kernel has that of the plan
// first which was applied first, and such a plan is the last of the namespace.
func TestEqualPriorities(t *testing.T) {
	t.Parallel()
	plan := func(owner interception.Owner, kind interception.RouteType, table interception.RoutingTable) *interception.Plan {
		return buildFor(t, owner, func(b *interception.Builder) {
			b.Route(interception.Route{ID: "route", Type: kind, Destination: addresses("0.0.0.0/0")[0], Table: table, Why: "why"})
			b.PolicyRule(interception.PolicyRule{ID: "rule", Family: interception.IPv4, Any: true, Table: table, Priority: 7, Why: "why"})
		})
	}
	later, earlier := plan("plan-later", interception.RouteBlackhole, 100), plan("plan-earlier", interception.RouteUnreachable, 200)
	world := trace.Sidecar(nil, trace.SidecarOptions{})
	world.Namespaces[0].Plans = []*interception.Plan{later, earlier}
	expect(t, world, connect(application, "198.51.100.1:80"), unreachable+"; no rule decided")
}
