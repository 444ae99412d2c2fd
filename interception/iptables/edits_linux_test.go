// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/ipset"
	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

type owners = map[netip.Addr]string

// edited is a namespace with a live set of addresses.
type edited struct {
	*testing.T
	pod *sandboxtest.Pod
}

func newEdited(t *testing.T) edited {
	t.Helper()
	e := edited{t, sandboxtest.NewPod(t)}
	e.apply(e.dataplane(), true)
	return e
}

func (e edited) dataplane() *Dataplane {
	e.Helper()
	d, err := New(Options{Flavour: Legacy})
	if err != nil {
		e.Fatal(err)
	}
	return d
}

func (e edited) apply(d *Dataplane, with bool) {
	e.Helper()
	plan, err := interception.Build("test-mesh", func(b *interception.Builder) {
		c := b.Mangle("pods")
		c.Entry(interception.Prerouting, interception.Match{}, "all packets")
		if with {
			set := b.LiveAddresses("pods", interception.IPv4, "pods")
			c.Do("pods", interception.Match{DstSet: interception.Is(set)}, interception.Return{}, "pods of the node")
		}
	})
	if err == nil {
		err = d.Apply(e.Context(), e.pod.Netns, plan)
	}
	if err != nil {
		e.Fatal(err)
	}
}

func (e edited) update(d *Dataplane, edit interception.SetEdit) {
	e.Helper()
	if err := d.UpdateSet(e.Context(), e.pod.Netns, "test-mesh", "pods", edit); err != nil {
		e.Fatal(err)
	}
}

func (e edited) holds(want owners) {
	e.Helper()
	state, err := e.dataplane().Observe(e.Context(), e.pod.Netns, "test-mesh")
	if got := state.Owners["pods"]; err != nil || !maps.Equal(got, want) {
		e.Errorf("the members are %v, %v, want %v", got, err, want)
	}
}

func (e edited) socket() *ipset.Socket {
	e.Helper()
	s, err := ipset.Dial(kernel.Of(e.pod.File()))
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = s.Close() }) // nothing was written
	return s
}

func (e edited) names() []string {
	e.Helper()
	names, err := e.socket().Names()
	if slices.Sort(names); err != nil {
		e.Fatal(err)
	}
	return names
}

// TestTwoProcessesEdit has two dataplanes edit one set, as those of two processes do: each notices
// what the other has done.
func TestTwoProcessesEdit(t *testing.T) {
	t.Parallel()
	e := newEdited(t)
	a, b := e.dataplane(), e.dataplane()
	one, two := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	e.update(a, interception.SetEdit{Add: owners{one: "old"}})
	e.update(b, interception.SetEdit{Add: owners{one: "new"}})
	e.update(a, interception.SetEdit{Remove: owners{one: "old"}}) // it comes late
	e.holds(owners{one: "new"})
	e.update(b, interception.SetEdit{Remove: owners{one: "new"}})
	e.update(a, interception.SetEdit{Add: owners{one: "new"}})
	e.update(b, interception.SetEdit{Add: owners{two: "other", one: "new"}})
	e.holds(owners{one: "new", two: "other"})
}

// TestEditThatEndsHalfway has an edit end after its token and its copy, as one that is killed does.
func TestEditThatEndsHalfway(t *testing.T) {
	t.Parallel()
	e := newEdited(t)
	d, killed := e.dataplane(), e.dataplane()
	one, two := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	e.update(d, interception.SetEdit{Add: owners{one: "a"}})
	e.update(killed, interception.SetEdit{Add: owners{two: "b"}})
	socket := e.socket()
	if err := socket.Create("test-mesh_pods_4n", ipset.OfAddresses, interception.IPv4); err != nil {
		t.Fatal(err)
	}
	// The address changes hands after a token that the other dataplane has not seen.
	if err := socket.Add("test-mesh_pods_4a", ipset.Member{Prefix: netip.PrefixFrom(one, 32), Comment: "b"}); err != nil {
		t.Fatal(err)
	}
	e.update(d, interception.SetEdit{Remove: owners{one: "a"}})
	e.holds(owners{one: "b", two: "b"})
	e.update(d, interception.SetEdit{Add: owners{one: "c", two: "c"}})
	e.holds(owners{one: "c", two: "c"})
	if got, want := e.names(), []string{"test-mesh_pods_4a", "test-mesh_pods_4t"}; !slices.Equal(got, want) {
		t.Errorf("the ipsets are %q, want %q", got, want)
	}
}

// TestSetsGoWithTheirPlan applies a plan without the set, and finds only another program's ipset.
func TestSetsGoWithTheirPlan(t *testing.T) {
	t.Parallel()
	e := newEdited(t)
	socket := e.socket()
	for _, name := range []string{"test-mesh-too_pods_4a", "test-mesh_pods_4n"} { // another owner's, and what a killed edit has left
		if err := socket.Create(name, ipset.OfAddresses, interception.IPv4); err != nil {
			t.Fatal(err)
		}
	}
	e.update(e.dataplane(), interception.SetEdit{Add: owners{netip.MustParseAddr("10.0.0.1"): "a"}})
	e.apply(e.dataplane(), false)
	if got, want := e.names(), []string{"test-mesh-too_pods_4a"}; !slices.Equal(got, want) {
		t.Errorf("the ipsets are %q, want %q", got, want)
	}
}
