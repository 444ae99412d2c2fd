// SPDX-License-Identifier: Apache-2.0

package choice_test

import (
	"context"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/internal/backend"
)

// withProbes adds a set of addresses for each family, and a rule that uses it.
func withProbes(b *interception.Builder) {
	chain := b.NAT("probes")
	chain.Entry(interception.Postrouting, interception.Match{L4: interception.TCP()}, "what leaves")
	for _, family := range []interception.Family{interception.IPv4, interception.IPv6} {
		set := b.LiveAddresses(interception.SetName("probes-"+family.String()), family, "addresses come and go")
		chain.Do(interception.RuleID("probe."+family.String()), interception.Match{DstSet: interception.Is(set), L4: interception.TCP()},
			interception.Accept{}, "what goes to one of them")
	}
}

// setEditor is a dataplane that edits sets of addresses.
type setEditor interface {
	interception.Dataplane
	UpdateSet(context.Context, *interception.Netns, interception.Owner, interception.SetName, interception.SetEdit) error
}

// edit changes the sets of withProbes.
func edit(t *testing.T, by interception.Dataplane, ns *interception.Netns, set interception.SetName, e interception.SetEdit) {
	t.Helper()
	editor, is := by.(setEditor)
	if !is {
		t.Fatalf("%T edits no sets", by)
	}
	if err := editor.UpdateSet(t.Context(), ns, "mesh-test", set, e); err != nil {
		t.Fatal(err)
	}
}

func someMembers() backend.Members {
	return backend.Members{
		"probes-v4": {netip.MustParseAddr("10.0.0.1"): "one", netip.MustParseAddr("10.0.0.2"): "two"},
		"probes-v6": {netip.MustParseAddr("fd00::1"): "one"},
	}
}

// applyWithMembers applies a plan and gives its sets members.
func applyWithMembers(t *testing.T, by interception.Dataplane, ns *interception.Netns) {
	t.Helper()
	if err := by.Apply(t.Context(), ns, capture(t, withProbes)); err != nil {
		t.Fatal(err)
	}
	for set, members := range someMembers() {
		edit(t, by, ns, set, interception.SetEdit{Add: members})
	}
}

// TestMembersAreCarried applies a plan with another dataplane than before: the members of the live
// sets come along, and can be edited.
func TestMembersAreCarried(t *testing.T) {
	t.Parallel()
	switches(t, func(t *testing.T, from, to string) {
		t.Helper()
		all, ns := backends(t), newPod(t)
		applyWithMembers(t, all[from], ns.Netns)
		wantOwners := func(want backend.Members) {
			t.Helper()
			state, err := all[to].Observe(t.Context(), ns.Netns, "mesh-test")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, state.Owners, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Errorf("members (-want +got):\n%s", diff)
			}
		}
		if err := all[to].Apply(t.Context(), ns.Netns, capture(t, withProbes)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]bool{to: true}, ns.rules(t)); diff != "" {
			t.Errorf("rules (-want +got):\n%s", diff)
		}
		wantOwners(someMembers())
		edit(t, all[to], ns.Netns, "probes-v4", interception.SetEdit{
			Remove: map[netip.Addr]string{netip.MustParseAddr("10.0.0.2"): "two"},
			Add:    map[netip.Addr]string{netip.MustParseAddr("10.0.0.1"): "three"},
		})
		want := someMembers()
		want["probes-v4"] = map[netip.Addr]string{netip.MustParseAddr("10.0.0.1"): "three"}
		wantOwners(want)
	})
}

// watched is a predecessor that calls the test before its rules go.
type watched struct {
	backend.Successor
	atRemove func(context.Context)
}

func (w watched) RemoveRules(ctx context.Context, ns *interception.Netns, owner interception.Owner) error {
	w.atRemove(ctx)
	return w.Successor.RemoveRules(ctx, ns, owner)
}

// TestMembersAreCarriedFirst checks that the new sets have all members when the former rules go,
// and that a member which the new set has keeps its owner.
func TestMembersAreCarriedFirst(t *testing.T) {
	t.Parallel()
	nft := func(p ...interception.Dataplane) (backend.Successor, error) {
		return nftables.New(nftables.Options{Predecessors: p})
	}
	ipt := func(p ...interception.Dataplane) (backend.Successor, error) {
		return iptables.New(iptables.Options{Flavour: iptables.Legacy, Predecessors: p})
	}
	for name, of := range map[string][2]func(...interception.Dataplane) (backend.Successor, error){
		"iptables to nftables": {ipt, nft}, "nftables to iptables": {nft, ipt},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := newPod(t)
			former, err := of[0]()
			if err != nil {
				t.Fatal(err)
			}
			applyWithMembers(t, former, ns.Netns)
			alone, err := of[1]() // as if it had been killed before it carried the members over
			if err != nil {
				t.Fatal(err)
			}
			if err := alone.Apply(t.Context(), ns.Netns, capture(t, withProbes)); err != nil {
				t.Fatal(err)
			}
			edit(t, alone, ns.Netns, "probes-v4", interception.SetEdit{Add: map[netip.Addr]string{netip.MustParseAddr("10.0.0.1"): "later"}})
			want := someMembers()
			want["probes-v4"][netip.MustParseAddr("10.0.0.1")] = "later"
			asked := 0
			next, err := of[1](watched{former, func(ctx context.Context) {
				asked++
				got, err := alone.Members(ctx, ns.Netns, "mesh-test")
				if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); err != nil || diff != "" {
					t.Errorf("when the former rules go: %v (-want +got):\n%s", err, diff)
				}
			}})
			if err != nil {
				t.Fatal(err)
			}
			if err := next.Apply(t.Context(), ns.Netns, capture(t, withProbes)); err != nil || asked != 1 {
				t.Errorf("%v, and the former rules were removed %d times", err, asked)
			}
		})
	}
}
