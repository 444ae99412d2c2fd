// SPDX-License-Identifier: Apache-2.0

package route

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
)

// others adds a route of another program, which leads to lo.
func others(t *testing.T, s *Socket, table int, destination string, metric int) {
	t.Helper()
	err := s.namespace.Change("add another's route", func() error {
		if err := netlink.LinkSetUp(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: 1}}); err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{
			Dst: network(netip.MustParsePrefix(destination)), LinkIndex: 1, Table: table, Priority: metric, Protocol: unix.RTPROT_STATIC,
			Scope: netlink.SCOPE_LINK,
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// applied brings the namespace to a plan of routes.
func applied(t *testing.T, s *Socket, routes ...interception.Route) (*interception.Plan, error) {
	t.Helper()
	plan := &interception.Plan{Owner: "mesh-test"}
	for _, r := range routes {
		r.ID, r.Why = "a.route", "a route"
		plan.Objects = append(plan.Objects, r)
	}
	c, err := s.Prepare(plan, meshOwner(), Options{})
	if err == nil {
		err = c.Do(t.Context())
	}
	return plan, err
}

// TestForeignRoutes has routes of another program that come after the plan: those in its own table
// are drift, whatever their destination, and those of another table or family are not.
func TestForeignRoutes(t *testing.T) {
	t.Parallel()
	s := newSocket(t)
	plan, err := applied(t, s, interception.Route{Type: interception.RouteUnreachable, Destination: netip.MustParsePrefix("0.0.0.0/0"), Table: 133})
	if err != nil {
		t.Fatal(err)
	}
	others(t, s, 134, "192.0.2.0/24", 0)
	others(t, s, 133, "2001:db8::/32", 0)
	others(t, s, unix.RT_TABLE_MAIN, "192.0.2.0/24", 0)
	if got := drifts(t, s, plan); got != nil {
		t.Errorf("in other tables: got %v", got)
	}
	others(t, s, 133, "192.0.2.0/24", 5)
	got := drifts(t, s, plan)
	if len(got) != 1 || got[0].Kind != interception.DriftForeign || !strings.Contains(got[0].Got, "192.0.2.0/24 dev lo metric 5 table 133 (protocol 4)") {
		t.Errorf("in the plan's table: got %v", got)
	}
}

// TestMetricsInTheMainTable has another program's route to the same destination: a plan's route
// with another metric stands beside it.
func TestMetricsInTheMainTable(t *testing.T) {
	t.Parallel()
	for metric, refused := range map[uint32]bool{0: true, 5: true, 6: false} {
		s := newSocket(t)
		others(t, s, unix.RT_TABLE_MAIN, "192.0.2.0/24", 5)
		wanted := interception.Route{Type: interception.RouteBlackhole, Destination: netip.MustParsePrefix("192.0.2.0/24"), Metric: metric}
		plan, err := applied(t, s, wanted)
		if refused != errors.Is(err, unix.EEXIST) || !refused && err != nil {
			t.Errorf("metric %d: got %v, refused %v", metric, err, refused)
		}
		if err == nil && drifts(t, s, plan) != nil {
			t.Errorf("metric %d: got %v", metric, drifts(t, s, plan))
		}
	}
}

// TestGotoNowhere has a policy rule that goes to another one, which is not there at first, then is,
// and goes.
func TestGotoNowhere(t *testing.T) {
	t.Parallel()
	s := newSocket(t)
	goes := interception.PolicyRule{ID: "goes", Family: interception.IPv4, Any: true, Goto: 200, Priority: 100, Why: "a rule"}
	target := interception.PolicyRule{ID: "target", Family: interception.IPv4, Any: true, Table: 7, Priority: 200, Why: "a rule"}
	for name, c := range []struct {
		rules  []interception.Object
		drifts string
	}{
		{[]interception.Object{goes}, "goto 200, which no rule has"},
		{[]interception.Object{goes, target}, ""},
		{[]interception.Object{goes}, "goto 200, which no rule has"},
	} {
		plan := &interception.Plan{Owner: "mesh-test", Objects: c.rules}
		change, err := s.Prepare(plan, meshOwner(), Options{})
		if err == nil {
			err = change.Do(t.Context())
		}
		if err == nil {
			err = change.Finish()
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := drifts(t, s, plan); c.drifts == "" && got != nil || c.drifts != "" && (len(got) != 1 || !strings.HasSuffix(got[0].Got, c.drifts)) {
			t.Errorf("%d: got %v, want %q", name, got, c.drifts)
		}
	}
}

// TestChangedRoutes replaces a route by one of each other form, of the same destination.
func TestChangedRoutes(t *testing.T) {
	t.Parallel()
	for _, destination := range []string{"192.0.2.0/24", "2001:db8::/32"} {
		s, prefix := newSocket(t), netip.MustParsePrefix(destination)
		others(t, s, 1, destination, 0) // sets lo up
		for _, r := range []interception.Route{
			{Type: interception.RouteUnreachable},
			{Type: interception.RouteThrow},
			{Device: "lo"},
			{Type: interception.RouteBlackhole},
			{Device: "lo", Metric: 5},
			{Type: interception.RouteLocal, Device: "lo"},
			{Type: interception.RouteUnreachable},
		} {
			r.Destination, r.Table, r.ID, r.Why = prefix, 133, "a.route", "a route"
			plan := &interception.Plan{Owner: "mesh-test", Objects: []interception.Object{r}}
			c, err := s.Prepare(plan, meshOwner(), Options{})
			if err == nil {
				err = c.Do(t.Context())
			}
			if err == nil {
				err = c.Settle(t.Context())
			}
			if err != nil {
				t.Fatalf("%+v: %v", r, err)
			}
			if got := drifts(t, s, plan); got != nil {
				t.Errorf("%+v: got %v", r, got)
			}
		}
	}
}
