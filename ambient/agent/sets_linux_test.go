// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/internal/tally"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/lower"
	"github.com/meshcni/meshcni/internal/ipset"
	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// TestAddressChangesHands gives a pod the addresses of one that the feed has not yet told the end
// of. They are the new pod's, whatever else changes of the former one, until the new one is gone.
func TestAddressChangesHands(t *testing.T) {
	t.Parallel()
	for first, remains := range map[string]string{"a": "b", "b": "a"} {
		t.Run(first+" goes", func(t *testing.T) {
			t.Parallel()
			n, b := newBreakable(t)
			for _, uid := range []string{"a", "b"} { // nothing happens in them that the agent would notice
				n.paths[uid] = sandboxtest.NewPod(t).Namespace.Path()
			}
			looks := n.countLooks("a")
			a, _ := n.run()
			n.proxy()
			n.feed <- told(object("a"))
			n.awaitSelection(a, "a")
			latter := object("b")
			latter.Addresses = addresses
			n.feed <- told(latter)
			n.awaitSelection(a, "a b")
			owned := func(uid string) func() bool {
				want := []string{"10.244.1.10 " + uid, "fd00:10:244:1::a " + uid}
				return func() bool { return slices.Equal(n.members(), want) }
			}
			say := func() string { return fmt.Sprintf("members %v; the agent says %s", n.members(), describe(a)) }
			ending, edited := object("a"), b.updates.Load()
			ending.Annotations = map[string]string{"example.com/ends": "soon"}
			n.tellAndAwait(a, looks, told(ending))
			if !owned("b")() || b.updates.Load() != edited {
				t.Errorf("the former pod takes its addresses back: %s", say())
			}
			n.feed <- ambient.Change{Gone: []string{first}}
			n.await(owned(remains), say)
			n.awaitSelection(a, remains)
			if first == "a" && b.updates.Load() != edited {
				t.Error("the addresses were not the new pod's all the time")
			}
		})
	}
}

// TestReleasedAddresses checks which pods the agent looks at when a pod leaves its addresses.
func TestReleasedAddresses(t *testing.T) {
	t.Parallel()
	a, err := New(t.Context(), newNode(t).options)
	if err != nil {
		t.Fatal(err)
	}
	latter := object("b")
	latter.Addresses = addresses[1:]
	a.learn(told(object("a"), latter, object("c")))
	for _, uid := range []string{"a", "b", "c"} {
		a.workers[uid] = newWorker(a, uid)
		a.workers[uid].begin()
	}
	a.released("a", addresses)
	for uid, want := range map[string]bool{"a": false, "b": true, "c": false} {
		if got := a.workers[uid].nudged; got != want {
			t.Errorf("the worker of %s looks again: %t, want %t", uid, got, want)
		}
	}
}

// strangers gives the host its plan, and members of no pod.
func (n *node) strangers(members map[netip.Addr]string) {
	n.t.Helper()
	plan, err := ambient.HostPlan(n.options.Numbers, interception.Facts{IPv6: true, LoopbackIPv6: true}, owner)
	if err == nil {
		err = n.dataplane.Apply(n.t.Context(), n.options.Host, plan)
	}
	for address, uid := range members {
		if err == nil {
			err = n.options.Sets.UpdateSet(n.t.Context(), n.options.Host, owner, ambient.ProbeSet(interception.FamilyOf(address)),
				interception.SetEdit{Add: map[netip.Addr]string{address: uid}})
		}
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// TestMembersOfNoPod has sets with members that no record tells of. They stay until the feed is
// complete, also those of a pod that turns out to be wanted.
func TestMembersOfNoPod(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pods := []*dataplanetest.Pod{n.pod("a"), n.pod("b")}
	n.strangers(map[netip.Addr]string{
		addresses[0]: "a", netip.MustParseAddr("10.244.1.99"): "gone", netip.MustParseAddr("fd00:10:244:1::99"): "gone",
		netip.MustParseAddr("10.244.1.98"): "c",
	})
	a, _ := n.run()
	n.proxy()
	n.feed <- ambient.Change{Namespaces: told().Namespaces, Pods: []ambient.Pod{object("a"), optedOut("c")}}
	n.awaitPods(a, "that it waits for the proxy, which waits for the feed", func(pods []Pod) bool {
		return len(pods) == 1 && pods[0].Step == ambient.StepTell && a.sets.isReady()
	})
	if got := n.members(); len(got) != 4 {
		t.Errorf("before the feed is complete, the members are %v", got)
	}
	n.feed <- ambient.Change{Pods: []ambient.Pod{object("b")}, Complete: true}
	want := []string{"10.244.1.10 a", "10.244.2.98 b", "fd00:10:244:1::a a"}
	n.await(func() bool { return slices.Equal(n.members(), want) }, func() string {
		return cmp.Diff(want, n.members()) + describe(a)
	})
	n.awaitSelection(a, "a b")
	if !n.served(pods[0]) || !n.served(pods[1]) {
		t.Error("a pod is not served")
	}
}

// TestMembersWithoutOwner has another program add members to the host's sets, as nft and ipset do.
// They stay until the feed is complete, and go then, and whenever one is added. A pod's member that
// another program has replaced is the pod's again.
func TestMembersWithoutOwner(t *testing.T) {
	t.Parallel()
	for name, dataplane := range hostDataplanes(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.dataplane, n.options.Dataplane, n.options.Sets = dataplane, dataplane, dataplane
			if name != "nftables" { // an ipset with another member has as many
				n.options.Round = 100 * time.Millisecond
			}
			counted := n.count()
			n.strangers(nil)
			stray := netip.MustParseAddr("10.244.1.77")
			n.addStray(name, stray)
			n.pod("a")
			a, _ := n.run()
			n.proxy()
			incomplete := told(object("a"))
			incomplete.Complete = false
			n.feed <- incomplete
			counted.await("drift sets", 1)
			if got := n.members(); !slices.Contains(got, "10.244.1.77 ") {
				t.Errorf("before the feed is complete, the members are %v", got)
			}
			n.feed <- ambient.Change{Complete: true}
			n.awaitSelection(a, "a")
			want := []string{"10.244.1.10 a", "fd00:10:244:1::a a"}
			right := func() bool { return slices.Equal(n.members(), want) }
			counted.await("healed sets", 1)
			n.await(right, func() string { return cmp.Diff(want, n.members()) })
			n.addStray(name, stray)
			counted.await("healed sets", 2)
			n.await(right, func() string { return cmp.Diff(want, n.members()) })
			n.replaceByStray(name, addresses[0])
			counted.await("healed sets", 3)
			n.await(right, func() string { return cmp.Diff(want, n.members()) })
		})
	}
}

// addStray adds a member of IPv4 without an owner to the host's set.
func (n *node) addStray(dataplane string, address netip.Addr) {
	n.t.Helper()
	if dataplane == "nftables" {
		n.nftElement("add", address)
		return
	}
	n.onIPSet(func(s *ipset.Socket, set string) error {
		return s.Add(set, ipset.Member{Prefix: netip.PrefixFrom(address, 32)})
	})
}

// replaceByStray removes a member, and adds it again without an owner.
func (n *node) replaceByStray(dataplane string, address netip.Addr) {
	n.t.Helper()
	if dataplane == "nftables" {
		n.nftElement("delete", address)
		n.nftElement("add", address)
		return
	}
	n.onIPSet(func(s *ipset.Socket, set string) error { // it replaces the comment
		return s.Add(set, ipset.Member{Prefix: netip.PrefixFrom(address, 32)})
	})
}

func (n *node) nftElement(verb string, address netip.Addr) {
	n.t.Helper()
	set := lower.SetName(ambient.ProbeSet(interception.IPv4), 0)
	sandboxtest.Run(n.t, n.options.Host.File(), "", "nft", verb, "element", "inet", string(owner), set, "{ "+address.String()+" }")
}

// onIPSet does something to the host's ipset of IPv4.
func (n *node) onIPSet(do func(s *ipset.Socket, set string) error) {
	n.t.Helper()
	set, err := lower.IPSet(owner, interception.Set{Name: ambient.ProbeSet(interception.IPv4), Family: interception.IPv4, Live: true, Addresses: true})
	if err != nil {
		n.t.Fatal(err)
	}
	s, err := ipset.Dial(kernel.Of(n.options.Host.File()))
	if err != nil {
		n.t.Fatal(err)
	}
	if err := errors.Join(do(s, set), s.Close()); err != nil {
		n.t.Fatal(err)
	}
}

// TestAddressesAreUnknown has the API server know no address of a running pod any more, as after a
// restart of the kubelet, when another agent begins and another proxy comes: the pod keeps its
// members, and is served.
func TestAddressesAreUnknown(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := n.pod("a")
	first, end := n.run()
	former := n.proxy()
	n.feed <- told(object("a"))
	n.awaitSelection(first, "a")
	end()
	if err := former.Close(); err != nil {
		t.Error(err)
	}
	second, _ := n.run()
	n.proxy()
	without := object("a")
	without.Addresses = nil
	n.feed <- told(without)
	n.awaitSelection(second, "a")
	n.connect(pod, 1)
	if diff := cmp.Diff([]string{"10.244.1.10 a", "fd00:10:244:1::a a"}, n.members()); diff != "" {
		t.Errorf("members of the host's sets (-want +got):\n%s", diff)
	}
}

// TestJobWithoutAddresses has a job end while no agent runs, and the API server know no address of
// it any more. Another pod has got one of its addresses. The other one goes.
func TestJobWithoutAddresses(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.pod("a")
	n.pod("b")
	first, end := n.run()
	n.proxy()
	n.feed <- told(object("a"))
	n.awaitSelection(first, "a")
	end()
	job, latter := object("a"), object("b")
	job.Phase, job.Addresses, latter.Addresses = "Failed", nil, addresses[:1]
	n.run()
	n.feed <- told(job, latter)
	n.await(func() bool {
		return slices.Equal(n.members(), []string{"10.244.1.10 b"}) && slices.Equal(n.records(), attachments("b"))
	}, func() string {
		return fmt.Sprintf("members %v, records %v", n.members(), n.records())
	})
}

// TestEditsBesideLooks edits the host's sets during each look at them: the edits do not wait, and
// the looks do not count, until one makes the edits wait.
func TestEditsBesideLooks(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	native, is := n.dataplane.(hostDataplane)
	if !is {
		t.Fatal("the dataplane edits no sets")
	}
	s := &sets{
		options: &n.options, tally: tally.New(nil), changed: make(chan struct{}, 1), entered: make(chan struct{}, 1),
		former: map[netip.Addr][]string{},
	}
	if err := s.prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	looks, last := 0, make(chan error, 1)
	n.options.Dataplane = editing{native, n.options.Host, func() {
		looks++
		entered, address := make(chan error, 1), netip.AddrFrom4([4]byte{10, 244, 3, byte(looks)})
		uid := address.String()
		go func() { entered <- s.enter(t.Context(), uid, func() []netip.Addr { return []netip.Addr{address} }) }()
		if looks > calmLooks {
			last = entered
			return
		}
		if err := <-entered; err != nil {
			t.Error(err)
		}
	}}
	if err := s.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if looks != calmLooks+1 {
		t.Errorf("%d looks, want %d", looks, calmLooks+1)
	}
	if err := <-last; err != nil {
		t.Error(err)
	}
	want := []string{"10.244.3.1 10.244.3.1", "10.244.3.2 10.244.3.2", "10.244.3.3 10.244.3.3", "10.244.3.4 10.244.3.4"}
	if got := n.members(); !slices.Equal(got, want) || len(s.uids()) != len(want) || len(s.takeLost()) > 0 {
		t.Errorf("members %v, known %v, lost %v, want %v", got, s.uids(), s.takeLost(), want)
	}
}
