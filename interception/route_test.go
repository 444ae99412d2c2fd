// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"net/netip"
	"slices"
	"testing"
)

// TestDiffOfRoutes has routes that differ in one thing only, and other programs' routes.
func TestDiffOfRoutes(t *testing.T) {
	t.Parallel()
	four, six := netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")
	gateway, source := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	via := Route{Destination: four, Device: "eth0", Gateway: gateway, Table: 7}
	with := func(edit func(*Route)) Route {
		r := via
		edit(&r)
		return r
	}
	const text = "route unicast 10.0.0.0/8 dev eth0 via 10.0.0.1"
	changed := func(got string) []string {
		return []string{"routes: changed a.route (why): want " + text + " table 7: got " + got}
	}
	for name, c := range map[string]struct {
		want, got Route
		drifts    []string
	}{
		"the same":                   {via, via, nil},
		"the main table's number":    {with(func(r *Route) { r.Table = 0 }), with(func(r *Route) { r.Table = 254 }), nil},
		"onlink":                     {via, with(func(r *Route) { r.OnLink = true }), changed(text + " onlink table 7")},
		"a preferred source":         {via, with(func(r *Route) { r.Source = source }), changed(text + " src 10.0.0.2 table 7")},
		"a metric":                   {via, with(func(r *Route) { r.Metric = 5 }), changed(text + " metric 5 table 7")},
		"another type":               {via, Route{Type: RouteUnreachable, Destination: four, Table: 7}, changed("route unreachable 10.0.0.0/8 table 7")},
		"the kernel's metric for v6": {Route{Destination: six, Device: "lo"}, Route{Destination: six, Device: "lo", Metric: 1024}, nil},
	} {
		c.want.ID, c.want.Why = "a.route", "why"
		var drifts []string
		for _, d := range Diff(&Plan{Owner: "test-mesh", Objects: []Object{c.want}}, State{Objects: []Object{c.got}}) {
			drifts = append(drifts, d.String())
		}
		if !slices.Equal(drifts, c.drifts) {
			t.Errorf("%s: got %q, want %q", name, drifts, c.drifts)
		}
	}
}

// TestDiffOfMetrics pairs routes to one destination by their metrics, and reports another
// program's.
func TestDiffOfMetrics(t *testing.T) {
	t.Parallel()
	route := func(id RuleID, metric uint32, device Interface) Route {
		return Route{ID: id, Destination: netip.MustParsePrefix("10.0.0.0/8"), Device: device, Metric: metric, Table: 7, Why: "why"}
	}
	plan := &Plan{Owner: "test-mesh", Objects: []Object{route("low", 1, "eth0"), route("high", 2, "eth1")}}
	got := Diff(plan, State{
		Objects:    []Object{route("", 2, "eth2"), route("", 1, "eth0")},
		Deviations: []Deviation{{At: "routes", Got: "another route", Foreign: true}},
	})
	if len(got) != 2 || got[0].ID != "high" || got[0].Kind != DriftChanged || got[1].Kind != DriftForeign || got[1].Got != "another route" {
		t.Errorf("got %v", got)
	}
}
