// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
)

func TestRulesAreCompared(t *testing.T) {
	t.Parallel()
	plan, err := ambient.PodPlan(ambient.DefaultOverrides(true), ambient.IstioNumbers(), interception.Facts{IPv6: true}, "test-ambient")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		plan *interception.Plan
		has  *interception.Plan
		same bool
	}{
		{"as planned", plan, plan, true},
		{"nothing", nil, &interception.Plan{}, true},
		{"rules that are left", nil, plan, false},
		{"missing rules", plan, &interception.Plan{}, false},
		{"draining rules", plan, plan.Draining(), false},
	} {
		err := compareRules(test.plan, interception.State{Owner: plan.Owner, Objects: test.has.Objects})
		if (err == nil) != test.same {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func TestPodsStillInSets(t *testing.T) {
	t.Parallel()
	pods := map[netip.Addr]string{ordersAddress: orders}
	for address, left := range map[netip.Addr]bool{ordersAddress: true, worldAddress: false} {
		err := stillIn(interception.State{Owners: map[interception.SetName]map[netip.Addr]string{"probes-v4": {address: "uid"}}}, pods)
		if (err != nil) != left || left && !strings.Contains(err.Error(), orders) {
			t.Errorf("a set with %s: %v", address, err)
		}
	}
}
