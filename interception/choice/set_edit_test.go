// SPDX-License-Identifier: Apache-2.0

package choice_test

import (
	"errors"
	"io/fs"
	"maps"
	"net/netip"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/dataplanetest/fake"
)

// withoutSets is a dataplane that has no method UpdateSet.
type withoutSets struct{ interception.Dataplane }

func addresses(t *testing.T, set interception.SetName) *interception.Plan {
	t.Helper()
	plan, err := interception.Build("mesh-test", func(b *interception.Builder) { b.LiveAddresses(set, interception.IPv4, "addresses come and go") })
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// TestUpdateSet edits the set with whichever candidate holds it, and observes the members of all.
func TestUpdateSet(t *testing.T) {
	t.Parallel()
	b := newBench(fake.Options{}, fake.Options{})
	ns := b.dataplanes[0].Netns("pod")
	d, err := choice.New(choice.Candidate{Name: "without", Dataplane: withoutSets{fake.New(fake.Options{})}}, b.candidates[0], b.candidates[1])
	if err != nil {
		t.Fatal(err)
	}
	one := map[netip.Addr]string{netip.MustParseAddr("10.0.0.1"): "one"}
	edit := func(set interception.SetName) error {
		return d.UpdateSet(t.Context(), ns, "mesh-test", set, interception.SetEdit{Add: one})
	}
	if err := edit("first"); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, interception.ErrUnsupported) {
		t.Errorf("a set that none holds: %v, want fs.ErrNotExist alone", err)
	}
	for i, set := range []interception.SetName{"first", "second"} {
		if err := b.dataplanes[i].Apply(t.Context(), ns, addresses(t, set)); err != nil {
			t.Fatal(err)
		}
		if err := edit(set); err != nil {
			t.Errorf("the set of candidate %d: %v", i, err)
		}
	}
	state, err := d.Observe(t.Context(), ns, "mesh-test")
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(state.Owners["first"], one) || !maps.Equal(state.Owners["second"], one) {
		t.Errorf("got the owners %v, want %v in either set", state.Owners, one)
	}
}

// TestUpdateSetWithNone has no candidate that can hold sets of addresses, and one that is broken.
func TestUpdateSetWithNone(t *testing.T) {
	t.Parallel()
	busy := errors.New("the kernel is busy")
	failing := func(err error) fake.Options {
		return fake.Options{Before: func(c fake.Call) error {
			if c.Verb == fake.UpdateSet {
				return err
			}
			return nil
		}}
	}
	for name, test := range map[string]struct {
		first fake.Options
		want  error
	}{
		"unsupported": {failing(interception.ErrUnsupported), interception.ErrUnsupported},
		"broken":      {failing(busy), busy},
	} {
		b := newBench(test.first, fake.Options{})
		ns := b.dataplanes[0].Netns("pod")
		d, err := choice.New(b.candidates[0], choice.Candidate{Name: "without", Dataplane: withoutSets{b.dataplanes[1]}})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.dataplanes[0].Apply(t.Context(), ns, addresses(t, "set")); err != nil {
			t.Fatal(err)
		}
		if err := d.UpdateSet(t.Context(), ns, "mesh-test", "set", interception.SetEdit{}); !errors.Is(err, test.want) || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got %v, want %v", name, err, test.want)
		}
	}
}
