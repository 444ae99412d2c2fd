// SPDX-License-Identifier: Apache-2.0

package iptables_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/internal/ipset"
	"github.com/meshcni/meshcni/internal/testing/kerneltest"
)

func address(last byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, last}) }

// TestUpdateSetFailures has each call to the kernel fail, once and from then on, as when the
// process ends there: the members are the old ones or the edited ones, no error means the edited
// ones, and the edit made again is made.
func TestUpdateSetFailures(t *testing.T) {
	t.Parallel()
	h := newHolding(t, iptables.NFT, interception.IPv4)
	oldMembers := owners{address(1): "one", address(2): "two", address(4): "four"}
	for what, edit := range map[string]interception.SetEdit{
		"a takeover": {Add: owners{address(1): "three"}},
		"a removal":  {Remove: owners{address(2): "two"}},
		"several": {
			Remove: owners{address(2): "two", address(4): "late"}, Add: owners{address(1): "three", address(3): "three"},
		},
	} {
		edited := maps.Clone(oldMembers)
		maps.Copy(edited, edit.Add)
		delete(edited, address(2))
		if edit.Remove == nil {
			edited[address(2)] = "two"
		}
		// try makes the edit with a fault, by a dataplane that has no index yet.
		try := func(f *kerneltest.Fault) error {
			h.update(t, interception.SetEdit{Remove: h.members(t)})
			h.update(t, interception.SetEdit{Add: oldMembers})
			ctx, end := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer end()
			return dataplane(t, iptables.Options{}).Through(f.Open).UpdateSet(ctx, h.Netns, "mesh-test", "pods", edit)
		}
		smooth := &kerneltest.Fault{}
		if err := try(smooth); err != nil || !maps.Equal(h.members(t), edited) {
			t.Fatalf("%s without a fault: got %v and %v", what, err, h.members(t))
		}
		for _, f := range kerneltest.Faults(smooth.Calls()) {
			for _, forever := range []bool{false, true} {
				fault := &kerneltest.Fault{Kind: f.Kind, At: f.At, Message: f.Message, Forever: forever}
				err := try(fault)
				now := h.members(t)
				if made := maps.Equal(now, edited); !made && !maps.Equal(now, oldMembers) || !made && err == nil {
					t.Errorf("%s, %s, forever %v: %v, and the members are %v", what, fault, forever, err, now)
				}
				h.update(t, edit)
				if again := h.members(t); !maps.Equal(again, edited) {
					t.Errorf("%s, %s: the edit made again brings %v", what, fault, again)
				}
			}
		}
	}
	h.apply(t)
	if sets, want := h.sets(t), []string{"mesh-test_nets_4p", "mesh-test_pods_4a", "mesh-test_pods_4t"}; !slices.Equal(sets, want) {
		t.Errorf("after Apply there are %v, want %v", sets, want)
	}
}

// TestUpdateSetAfterOthers has another program change members, which writes no token: an edit that
// needs them as they are finds out.
func TestUpdateSetAfterOthers(t *testing.T) {
	t.Parallel()
	h := newHolding(t, iptables.NFT, interception.IPv4)
	const set = "mesh-test_pods_4a"
	member := func(last byte, owner string) ipset.Member {
		return ipset.Member{Prefix: netip.PrefixFrom(address(last), 32), Comment: owner}
	}
	for _, step := range []struct {
		what   string
		others func(s *ipset.Socket) error
		look   bool
		edit   interception.SetEdit
		want   owners
	}{
		{
			"a member more", func(s *ipset.Socket) error { return s.Add(set, member(2, "stray")) }, false,
			interception.SetEdit{Remove: owners{address(2): "stray"}},
			owners{address(1): "one"},
		},
		{
			"a member without an owner", func(s *ipset.Socket) error { return s.Add(set, member(2, "")) }, false,
			interception.SetEdit{Remove: owners{address(1): "", address(2): "", address(3): ""}},
			owners{address(1): "one"},
		},
		{
			"a member less", func(s *ipset.Socket) error { return s.Delete(set, member(1, "")) }, false,
			interception.SetEdit{Add: owners{address(1): "one"}},
			owners{address(1): "one"},
		},
		{
			"a member more, beside an edit of another", func(s *ipset.Socket) error { return s.Add(set, member(2, "stray")) }, false,
			interception.SetEdit{Remove: owners{address(2): "stray"}, Add: owners{address(3): "three"}},
			owners{address(1): "one", address(3): "three"},
		},
		{
			"another member", func(s *ipset.Socket) error {
				return errors.Join(s.Add(set, member(2, "stray")), s.Delete(set, member(1, "")))
			}, true,
			interception.SetEdit{Remove: owners{address(2): "stray"}, Add: owners{address(1): "one"}},
			owners{address(1): "one"},
		},
		{
			"another owner", func(s *ipset.Socket) error { return s.Add(set, member(1, "other")) }, true,
			interception.SetEdit{Remove: owners{address(1): "one"}},
			owners{address(1): "other"},
		},
	} {
		h.update(t, interception.SetEdit{Remove: h.members(t)})
		h.update(t, interception.SetEdit{Add: owners{address(1): "one"}})
		h.onSets(t, step.others)
		if step.look {
			h.observe(t)
		}
		h.update(t, step.edit)
		if got := h.members(t); !maps.Equal(got, step.want) {
			t.Errorf("%s: the members are %v, want %v", step.what, got, step.want)
		}
	}
}

// TestUpdateSetManyNamespaces edits the sets of more namespaces than a dataplane has indexes for.
func TestUpdateSetManyNamespaces(t *testing.T) {
	t.Parallel()
	plan := build(t, "mesh-test", func(b *interception.Builder) { b.LiveAddresses("pods", interception.IPv4, "addresses come and go") })
	d := dataplane(t, iptables.Options{})
	var all []*holding
	for range 70 {
		h := &holding{newPod(t), d, plan}
		h.apply(t)
		all = append(all, h)
	}
	for round := range 2 {
		for _, h := range all {
			h.update(t, interception.SetEdit{Add: owners{address(1): fmt.Sprint("owner-", round)}})
		}
	}
	if kept := iptables.Indexes(d); kept > 64 {
		t.Errorf("the dataplane keeps %d indexes", kept)
	}
	for _, h := range all {
		h.update(t, interception.SetEdit{Remove: owners{address(1): "owner-1"}})
		if got := h.members(t); len(got) > 0 {
			t.Errorf("the members are %v, want none", got)
		}
	}
}

// TestEditHasNoGap has a member change hands, alone and beside others, while packets are sent that
// a rule drops only if the member is missing.
func TestEditHasNoGap(t *testing.T) {
	t.Parallel()
	h := &holding{newPod(t), dataplane(t, iptables.Options{}), build(t, "mesh-test", func(b *interception.Builder) {
		pods := b.LiveAddresses("pods", interception.IPv4, "addresses come and go")
		c := b.Filter("output")
		c.Entry(interception.Output, interception.Match{}, "all packets")
		c.Do("output.others", interception.Match{DstSet: interception.Not(pods)}, interception.Drop{}, "to no pod")
	})}
	h.apply(t)
	h.Run(t, "", "ip", "link", "set", "lo", "up")
	to := netip.MustParseAddr("127.0.0.9")
	if !h.dropped(t, to) {
		t.Fatal("what goes to no member should be dropped")
	}
	h.update(t, interception.SetEdit{Add: owners{to: "owner"}})
	end := make(chan struct{})
	var sender sync.WaitGroup
	sender.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
			}
			if h.dropped(t, to) {
				t.Error("a packet was dropped: the member was missing")
				return
			}
		}
	})
	for i := range 100 {
		h.update(t, interception.SetEdit{Add: owners{to: fmt.Sprint("owner-", i)}})
		h.update(t, interception.SetEdit{Add: owners{to: "owner", address(byte(i)): "another"}})
	}
	close(end)
	sender.Wait()
}
