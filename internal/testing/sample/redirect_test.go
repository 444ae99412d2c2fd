// SPDX-License-Identifier: Apache-2.0

package sample_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/interception/trace"
	"github.com/meshcni/meshcni/internal/testing/sample"
)

func TestRedirectsAreValidAndDiffer(t *testing.T) {
	t.Parallel()
	values := map[string]map[string]bool{}
	most := map[string]int{}
	for seed := range uint64(500) {
		r := sample.Redirect(sample.Seeded(seed))
		if err := r.Validate(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if _, err := sidecar.Plan(r, interception.Facts{IPv6: true}, "test-plan"); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		note(values, "Redirect", reflect.ValueOf(r))
		most["prefixes"] = max(most["prefixes"], r.Outbound.Include.Len(), r.Outbound.Exclude.Len())
		most["ranges of ports"] = max(most["ranges of ports"], len(r.Inbound.Exclude.Ranges()), len(r.Outbound.ExcludePorts.Ranges()))
	}
	for field, seen := range values {
		if len(seen) < 2 && field != "Redirect.Sources" {
			t.Errorf("%s never differs", field)
		}
	}
	for what, n := range most {
		if n < 100 {
			t.Errorf("at most %d %s, want hundreds", n, what)
		}
	}
}

// note records the values of all fields, by their paths.
func note(values map[string]map[string]bool, path string, v reflect.Value) {
	if _, prints := v.Interface().(fmt.Stringer); v.Kind() == reflect.Struct && !prints {
		for i := range v.NumField() {
			note(values, path+"."+v.Type().Field(i).Name, v.Field(i))
		}
		return
	}
	if values[path] == nil {
		values[path] = map[string]bool{}
	}
	values[path][fmt.Sprint(v.Interface())] = true
}

func TestPacketsAreTraced(t *testing.T) {
	t.Parallel()
	for seed := range uint64(500) {
		c := sample.Seeded(seed)
		r := sample.Redirect(c)
		plan, err := sidecar.Plan(r, interception.Facts{IPv6: true}, "test-plan")
		if err != nil {
			t.Fatal(err)
		}
		pod := sample.Pod{Redirect: r, Addresses: []netip.Addr{netip.MustParseAddr("10.244.0.2"), netip.MustParseAddr("fd00:10:244::2")}}
		for address := range interception.ObjectsOf[interception.Address](plan) {
			pod.Loopback = append(pod.Loopback, address.Prefix.Addr())
		}
		for range 20 {
			packet := pod.Packet(c)
			if _, err := trace.Trace(trace.Sidecar(plan, trace.SidecarOptions{}), packet); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		}
	}
}
