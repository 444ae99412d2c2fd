// SPDX-License-Identifier: Apache-2.0

package choice_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/dataplanetest/fake"
)

// TestDataplane applies with the first candidate that can, and stops at any other error.
func TestDataplane(t *testing.T) {
	t.Parallel()
	busy := errors.New("the kernel is busy")
	for name, test := range map[string]struct {
		o     fake.Options
		which int // index of the dataplane with the plan; -1 for none
		want  error
	}{
		"the first can":     {fake.Options{}, 0, nil},
		"a feature lacks":   {fake.Options{Before: lacking("module for", "tproxy")}, 1, nil},
		"the kernel is bad": {fake.Options{Before: fake.Nth(fake.Apply, 1, busy)}, -1, busy},
	} {
		b := newBench(test.o, fake.Options{})
		ns := b.dataplanes[0].Netns("pod")
		d, err := choice.New(b.candidates...)
		if err != nil {
			t.Fatal(err)
		}
		by, err := d.ApplyBy(t.Context(), ns, capture(t))
		if !errors.Is(err, test.want) || err == nil && by != b.candidates[test.which].Name {
			t.Errorf("%s: got %v by %s", name, err, by)
		}
		for i, one := range b.dataplanes {
			if holds := one.Dump(ns) != ""; holds != (i == test.which) {
				t.Errorf("%s: dataplane %d holds it: %v", name, i, holds)
			}
		}
		state, err := d.Observe(t.Context(), ns, "mesh-test")
		if err != nil {
			t.Fatal(err)
		}
		if drift := interception.Diff(capture(t), state); (drift == nil) != (test.which >= 0) {
			t.Errorf("%s: observed %v", name, drift)
		}
		if err := d.Remove(t.Context(), ns, "mesh-test"); err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(b.dataplanes, func(one *fake.Dataplane) bool { return one.Dump(ns) != "" }) {
			t.Errorf("%s: Remove left something", name)
		}
	}
}

// TestDataplaneWithNone expects an error with what each candidate lacks.
func TestDataplaneWithNone(t *testing.T) {
	t.Parallel()
	b := newBench(fake.Options{Refuse: fake.Lacks[interception.TProxyTo]}, fake.Options{Before: lacking("module for", "redirect")})
	d, err := choice.New(b.candidates...)
	if err != nil {
		t.Fatal(err)
	}
	var none *choice.Error
	if err := d.Apply(t.Context(), b.dataplanes[0].Netns("pod"), capture(t)); !errors.As(err, &none) || len(none.Rejections) != 2 {
		t.Errorf("got %v", err)
	}
	if err := d.Supports(capture(t)); err != nil { // the second does, as far as it knows
		t.Error(err)
	}
}

// TestRemoveWithoutSupport ignores an unsupported dataplane, unless it is the only one.
func TestRemoveWithoutSupport(t *testing.T) {
	t.Parallel()
	refuse := fake.Options{Before: func(fake.Call) error { return interception.ErrUnsupported }}
	b := newBench(refuse, fake.Options{})
	for n, want := range []error{interception.ErrUnsupported, nil} {
		d, err := choice.New(b.candidates[:n+1]...)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Remove(t.Context(), b.dataplanes[0].Netns("pod"), "mesh-test"); !errors.Is(err, want) {
			t.Errorf("with %d: got %v", n+1, err)
		}
	}
}

// An empty State without an error would mean that the owner has nothing.
func TestZeroDataplane(t *testing.T) {
	t.Parallel()
	var d choice.Dataplane
	ns := fake.New(fake.Options{}).Netns("pod")
	if state, err := d.Observe(t.Context(), ns, "test-mesh"); err == nil {
		t.Errorf("Observe = %v, nil", state)
	}
	if err := d.Supports(nil); !errors.Is(err, interception.ErrPlan) {
		t.Errorf("Supports(nil) = %v, want ErrPlan", err)
	}
}
