// SPDX-License-Identifier: Apache-2.0

package fake_test

import (
	"errors"
	"io/fs"
	"net/netip"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest/fake"
)

func routed(owner interception.Owner, table interception.RoutingTable, destination string) *interception.Plan {
	return &interception.Plan{Owner: owner, Objects: []interception.Object{interception.Route{
		ID: "a.route", Type: interception.RouteUnreachable, Destination: netip.MustParsePrefix(destination), Table: table, Why: "a route",
	}}}
}

// TestForeignRoutes has another owner's route in the table of a plan: before the plan it is in the
// way, after it a deviation. Routes of other tables and families, and the same route, are neither.
func TestForeignRoutes(t *testing.T) {
	t.Parallel()
	first := routed("mesh-one", 133, "10.0.0.0/8")
	for name, c := range map[string]struct {
		second  *interception.Plan
		foreign bool
	}{
		"the table":      {routed("mesh-two", 133, "192.0.2.0/24"), true},
		"another table":  {routed("mesh-two", 134, "192.0.2.0/24"), false},
		"another family": {routed("mesh-two", 133, "2001:db8::/32"), false},
		"the same route": {routed("mesh-two", 133, "10.0.0.0/8"), false},
	} {
		dp := fake.New(fake.Options{})
		ns, before := dp.Netns("pod"), dp.Netns("before")
		if err := dp.Apply(t.Context(), ns, first); err != nil {
			t.Fatal(err)
		}
		dp.Edit(ns, c.second.Owner, func([]interception.Object) []interception.Object { return c.second.Objects })
		state, err := dp.Observe(t.Context(), ns, first.Owner)
		if err != nil {
			t.Fatal(err)
		}
		drifts := interception.Diff(first, state)
		if c.foreign != (len(drifts) == 1) || c.foreign && drifts[0].Kind != interception.DriftForeign {
			t.Errorf("%s: got %v, foreign %v", name, drifts, c.foreign)
		}
		if err := dp.Apply(t.Context(), before, c.second); err != nil {
			t.Fatal(err)
		}
		if err := dp.Apply(t.Context(), before, first); errors.Is(err, fs.ErrExist) != c.foreign {
			t.Errorf("%s, before: got %v, foreign %v", name, err, c.foreign)
		}
	}
}
