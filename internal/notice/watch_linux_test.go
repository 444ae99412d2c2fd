// SPDX-License-Identifier: Apache-2.0

package notice

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

func watch(t *testing.T, buffer int) *Watch {
	t.Helper()
	w, err := open(buffer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() }) // the test may have closed it
	return w
}

// watched returns a new namespace that is watched under a key.
func watched(t *testing.T, w *Watch, key string) *sandboxtest.Pod {
	t.Helper()
	pod := sandboxtest.NewPod(t)
	if err := w.Add(key, pod.Netns); err != nil {
		t.Fatal(err)
	}
	return pod
}

// do changes something in a namespace.
func do(t *testing.T, pod *sandboxtest.Pod, change func() error) {
	t.Helper()
	if err := pod.Namespace.Do(change); err != nil {
		t.Fatal(err)
	}
}

func next(t *testing.T, w *Watch) Changed {
	t.Helper()
	changed, err := w.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

func TestChangesAreNoticed(t *testing.T) {
	t.Parallel()
	const existing = "table inet mesh {\n set members { type ipv4_addr; }\n chain rules { }\n }"
	for name, test := range map[string]struct {
		commands string // for nft
		change   func() error
	}{
		"a table":  {commands: "add table inet other"},
		"a rule":   {commands: "add rule inet mesh rules counter"},
		"a flush":  {commands: "flush ruleset"},
		"a member": {commands: "add element inet mesh members { 10.0.0.1 }"},
		"a link": {change: func() error {
			return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "bridge"}})
		}},
		"an address": {change: func() error {
			return netlink.AddrAdd(lo(), &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 0, 0, 1), Mask: net.CIDRMask(32, 32)}})
		}},
		"a route": {change: func() error {
			return netlink.RouteAdd(&netlink.Route{LinkIndex: 1, Table: 100, Dst: &net.IPNet{IP: net.IPv4(10, 0, 0, 0), Mask: net.CIDRMask(8, 32)}})
		}},
		"a policy rule": {change: func() error {
			rule := netlink.NewRule()
			rule.Family, rule.Table, rule.Priority, rule.Mark = netlink.FAMILY_V6, 100, 100, 1
			return netlink.RuleAdd(rule)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := sandboxtest.NewPod(t)
			pod.Run(t, existing, "nft", "-f", "-")
			w := watch(t, receiveBuffer)
			if err := w.Add("pod", pod.Netns); err != nil {
				t.Fatal(err)
			}
			if test.change != nil {
				do(t, pod, test.change)
			} else {
				pod.Run(t, test.commands, "nft", "-f", "-")
			}
			if changed := next(t, w); !slices.Equal(changed.Keys, []string{"pod"}) || changed.Lost {
				t.Errorf("got %+v", changed)
			}
		})
	}
}

func lo() netlink.Link { return &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: 1, Name: "lo"}} }

// TestManyNamespaces changes one of 50 namespaces after the other.
func TestManyNamespaces(t *testing.T) {
	t.Parallel()
	w := watch(t, receiveBuffer)
	pods := map[string]*sandboxtest.Pod{}
	for i := range 50 {
		key := fmt.Sprint("pod-", i)
		pods[key] = watched(t, w, key)
	}
	done := map[string]bool{}
	for key, pod := range pods {
		pod.Run(t, "add table inet mesh", "nft", "-f", "-")
		done[key] = true
		for noticed := false; !noticed; { // of one change there are several notices
			changed := next(t, w)
			noticed = slices.Contains(changed.Keys, key)
			if changed.Lost || slices.ContainsFunc(changed.Keys, func(k string) bool { return !done[k] }) {
				t.Fatalf("after a change in %s: %+v", key, changed)
			}
		}
	}
}

// TestOthersAreNotNoticed changes a namespace that is not watched, one that is not watched any
// more, and this one.
func TestOthersAreNotNoticed(t *testing.T) {
	t.Parallel()
	w := watch(t, receiveBuffer)
	mine, former, other := watched(t, w, "mine"), watched(t, w, "former"), sandboxtest.NewPod(t)
	w.Remove("former")
	w.Remove("unknown")
	for _, pod := range []*sandboxtest.Pod{former, other, mine} { // the notices come in this order
		pod.Run(t, "add table inet mesh", "nft", "-f", "-")
	}
	if changed := next(t, w); !slices.Equal(changed.Keys, []string{"mine"}) {
		t.Errorf("got %+v", changed)
	}
	if err := w.Add("again", former.Netns); err != nil {
		t.Errorf("a namespace that is watched again: %v", err)
	}
}

// TestOwnNamespace watches that of this process, as an agent in the host's network does.
func TestOwnNamespace(t *testing.T) {
	t.Parallel()
	own, err := interception.HostNetns(interception.NetnsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	w := watch(t, receiveBuffer)
	if err := w.Add("own", own); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Run(t, own.File(), "add table inet own", "nft", "-f", "-")
	if changed := next(t, w); !slices.Equal(changed.Keys, []string{"own"}) {
		t.Errorf("got %+v", changed)
	}
}

// TestLost makes more notices than the buffer holds.
func TestLost(t *testing.T) {
	t.Parallel()
	const smallest = 1
	w := watch(t, smallest)
	pod := watched(t, w, "pod")
	rules := "table inet mesh {\n chain rules {\n"
	for range 2000 {
		rules += "counter\n"
	}
	for {
		pod.Run(t, rules+"}\n}\n", "nft", "-f", "-")
		if changed := next(t, w); changed.Lost {
			break
		}
	}
}

func TestAddRefuses(t *testing.T) {
	t.Parallel()
	w := watch(t, receiveBuffer)
	pod := watched(t, w, "pod")
	if err := w.Add("other", pod.Netns); err == nil {
		t.Error("a namespace is watched for two keys")
	}
	if err := w.Add("pod", sandboxtest.NewPod(t).Netns); err == nil {
		t.Error("two namespaces are watched for one key")
	}
	claimed := sandboxtest.NewPod(t).Netns
	if err := w.Claim("claimed", claimed); err != nil {
		t.Fatal(err)
	}
	if err := w.Add("other", claimed); err == nil {
		t.Error("a namespace is watched that is another key's")
	}
	if err := w.Add("claimed", claimed); err != nil {
		t.Errorf("the key's own namespace: %v", err)
	}
	for name, namespace := range map[string]*interception.Netns{
		"zero": {}, "stand-in": interception.StandInNetns("x", interception.NetnsID{Inode: 1}),
	} {
		if err := w.Add(name, namespace); !errors.Is(err, interception.ErrNotNetns) {
			t.Errorf("%s namespace: %v", name, err)
		}
	}
	closed := sandboxtest.NewPod(t).Netns
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Add("closed", closed); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a closed namespace: %v", err)
	}
}

func TestEnds(t *testing.T) {
	t.Parallel()
	w := watch(t, receiveBuffer)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Next(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("after the context's end: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	for range 2 {
		if _, err := w.Next(t.Context()); !errors.Is(err, os.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}
