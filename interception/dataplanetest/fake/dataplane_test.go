// SPDX-License-Identifier: Apache-2.0

package fake_test

import (
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest/fake"
	"github.com/meshcni/meshcni/interception/sidecar"
)

var errTest = errors.New("of the test")

// plan returns a plan with an object of each kind.
func plan(t *testing.T) *interception.Plan {
	t.Helper()
	redirect, _, err := sidecar.Istio().Parse(interception.Pod{
		Namespace: "shop", Name: "cart-0", Containers: []interception.Container{{Name: "istio-proxy"}},
		Annotations: map[string]string{"sidecar.istio.io/interceptionMode": "TPROXY"},
	})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := sidecar.Plan(redirect, interception.Facts{IPv6: true}, "mesh-test")
	if err != nil {
		t.Fatal(err)
	}
	plan.Objects = append([]interception.Object{
		interception.Link{
			ID: "link.tunnel", Name: "tunnel0", Geneve: &interception.Geneve{VNI: 1, Remote: netip.IPv6Loopback(), Port: 6081}, Why: "a link",
		},
		interception.Sysctl{ID: "sysctl.ttl", Key: "ipv4/ip_default_ttl", Value: 65, Why: "a sysctl", From: []interception.Source{{Key: "a"}}},
		interception.Set{Name: "live", Family: interception.IPv4, Live: true, Why: "a set"},
	}, plan.Objects...)
	return plan
}

func TestZeroValueIsADataplane(t *testing.T) {
	t.Parallel()
	var dp fake.Dataplane
	ns, p := dp.Netns("pod"), plan(t)
	if state, err := dp.Observe(t.Context(), ns, p.Owner); err != nil || len(state.Objects) > 0 {
		t.Errorf("an empty namespace holds %v, %v", state, err)
	}
	if err := dp.Remove(t.Context(), ns, p.Owner); err != nil {
		t.Error(err)
	}
	if err := dp.Apply(t.Context(), ns, p); err != nil {
		t.Fatal(err)
	}
	if dp.Dump(ns) != p.String() {
		t.Errorf("the namespace holds\n%s", dp.Dump(ns))
	}
}

func TestObservesWhatWasApplied(t *testing.T) {
	t.Parallel()
	dp, p := fake.New(fake.Options{}), plan(t)
	ns := dp.Netns("pod")
	if err := dp.Apply(t.Context(), ns, p); err != nil {
		t.Fatal(err)
	}
	text := p.String()
	for i := range p.Objects { // the caller may change its plan afterwards
		if table, ok := p.Objects[i].(interception.Table); ok {
			table.Chains[0].Rules[0].ID = "changed"
		}
	}
	if got := dp.Dump(ns); got != text {
		t.Errorf("the namespace holds\n%s\nwant\n%s", got, text)
	}
	state, err := dp.Observe(t.Context(), ns, "mesh-test")
	if err != nil {
		t.Fatal(err)
	}
	if drifts := interception.Diff(plan(t), state); len(drifts) > 0 {
		t.Errorf("%v", drifts)
	}
	if observed := (&interception.Plan{Owner: state.Owner, Objects: state.Objects}); observed.String() == text ||
		observed.Fingerprint() != plan(t).Fingerprint() {
		t.Errorf("want the plan without provenance, got\n%s", observed)
	}
}

func TestNamespacesAreToldApartByID(t *testing.T) {
	t.Parallel()
	dp := fake.New(fake.Options{})
	one, other := dp.Netns("one"), dp.Netns("other")
	again := interception.StandInNetns("one again", one.ID())
	if err := dp.Apply(t.Context(), one, plan(t)); err != nil {
		t.Fatal(err)
	}
	if dp.Dump(other) != "" || dp.Dump(again) != dp.Dump(one) || dp.Dump(one) == "" {
		t.Errorf("one:\n%sagain:\n%sother:\n%s", dp.Dump(one), dp.Dump(again), dp.Dump(other))
	}
}

func TestEdit(t *testing.T) {
	t.Parallel()
	dp, p := fake.New(fake.Options{}), plan(t)
	ns := dp.Netns("pod")
	if err := dp.Apply(t.Context(), ns, p); err != nil {
		t.Fatal(err)
	}
	dp.Edit(ns, p.Owner, func(objects []interception.Object) []interception.Object { return objects[1:] })
	state, err := dp.Observe(t.Context(), ns, p.Owner)
	if err != nil {
		t.Fatal(err)
	}
	drifts := interception.Diff(p, state)
	if len(drifts) != 1 || drifts[0].Kind != interception.DriftMissing || drifts[0].ID != "link.tunnel" {
		t.Errorf("%v, want the missing link", drifts)
	}
	empty := dp.Netns("empty")
	dp.Edit(empty, p.Owner, func(objects []interception.Object) []interception.Object { return append(objects, p.Objects[0]) })
	if !strings.Contains(dp.Dump(empty), "tunnel0") {
		t.Errorf("the namespace holds %q", dp.Dump(empty))
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		options fake.Options
		applied bool
	}{
		"before": {fake.Options{Before: fake.Nth(fake.Apply, 2, errTest)}, false},
		"after":  {fake.Options{After: fake.Nth(fake.Apply, 2, errTest)}, true},
	} {
		dp, p := fake.New(test.options), plan(t)
		first, second := dp.Netns("first"), dp.Netns("second")
		if err := dp.Apply(t.Context(), first, p); err != nil {
			t.Errorf("%s: the first Apply: %v", name, err)
		}
		if err := dp.Apply(t.Context(), second, p); !errors.Is(err, errTest) || (dp.Dump(second) != "") != test.applied {
			t.Errorf("%s: the second Apply: %v, the namespace holds\n%s", name, err, dp.Dump(second))
		}
		if err := dp.Apply(t.Context(), second, p); err != nil || dp.Dump(second) == "" {
			t.Errorf("%s: the third Apply: %v", name, err)
		}
	}
}

func TestCalls(t *testing.T) {
	t.Parallel()
	dp, p := fake.New(fake.Options{Before: fake.Nth(fake.Remove, 1, errTest)}), plan(t)
	ns := dp.Netns("pod")
	_ = dp.Apply(t.Context(), ns, p)
	_, _ = dp.Observe(t.Context(), ns, p.Owner)
	_ = dp.Remove(t.Context(), ns, p.Owner)
	_ = dp.Apply(t.Context(), nil, p)
	_ = dp.Apply(t.Context(), ns, &interception.Plan{Owner: "one"})
	var got []string
	for _, call := range dp.Calls() {
		line, _, _ := strings.Cut(call.String(), ";")
		got = append(got, line)
	}
	want := []string{
		"Apply 1: mesh-test in net:[1]",
		"Observe 1: mesh-test in net:[1]",
		"Remove 1: mesh-test in net:[1]: of the test",
		"Apply 2: mesh-test in net:[0]: no network namespace was given: not a network namespace",
		"Apply 3: one in net:[1]: " + (&interception.Plan{Owner: "one"}).Validate().Error(),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if first := dp.Calls()[0]; first.Plan.String() != p.String() {
		t.Errorf("the first call's plan is\n%s", first.Plan)
	}
}

func TestRefuse(t *testing.T) {
	t.Parallel()
	p := plan(t)
	for name, test := range map[string]struct {
		refuse func(fake.PlanPart) string
		names  []string // nil when all is supported
	}{
		"an action":        {fake.Lacks[interception.TProxyTo], []string{"mangle/"}},
		"a kind of object": {fake.Lacks[interception.Link], []string{"link.tunnel: ", "interception.Link"}},
		"tables":           {fake.Lacks[interception.Table], []string{"table mangle: ", "table nat: "}},
		"entries": {
			func(part fake.PlanPart) string {
				if part.Entry != nil && part.Entry.Hook == interception.Prerouting {
					return "no such hook"
				}
				return ""
			},
			[]string{"mangle.prerouting.", "no such hook"},
		},
		"an action that the plan has not": {fake.Lacks[interception.SNATTo], nil},
	} {
		dp := fake.New(fake.Options{Refuse: test.refuse})
		ns := dp.Netns("pod")
		supports, applied := dp.Supports(p), dp.Apply(t.Context(), ns, p)
		if test.names == nil {
			if supports != nil || applied != nil {
				t.Errorf("%s: %v, %v", name, supports, applied)
			}
			continue
		}
		if !errors.Is(applied, interception.ErrUnsupported) || !errors.Is(supports, interception.ErrUnsupported) || dp.Dump(ns) != "" {
			t.Errorf("%s: Supports: %v, Apply: %v, the namespace holds %q", name, supports, applied, dp.Dump(ns))
			continue
		}
		for _, want := range test.names {
			if !strings.Contains(supports.Error(), want) {
				t.Errorf("%s: %v does not name %q", name, supports, want)
			}
		}
	}
	if err := fake.New(fake.Options{}).Supports(nil); err == nil {
		t.Error("a nil plan is supported")
	}
}
