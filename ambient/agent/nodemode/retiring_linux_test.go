// SPDX-License-Identifier: Apache-2.0

package nodemode_test

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// TestRetiringKeepsItsPods has an agent retire that is started where two pods are captured: it
// restores their members, lets go the one that is not wanted any more, for good, and the one that
// it is told to withdraw, and enrols no other.
func TestRetiringKeepsItsPods(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	one, two, third := n.pod(), n.pod(), n.pod()
	proxyPod, proxy := n.proxy()
	_, end := n.run()
	n.feed <- told(proxyPod, one, two, out(third))
	n.awaitStatus(one.UID, ambient.StatusEnabled)
	n.awaitStatus(two.UID, ambient.StatusEnabled)
	end()
	n.options.Retiring = true
	a, _ := n.run()
	n.feed <- told(proxyPod, one, two, third)
	n.eventually("that the agent knows both pods", func() bool { return len(a.Pods()) == 2 })
	for _, set := range []string{"set-meshed-v4", "set-meshed-v6"} {
		sandboxtest.Run(t, n.made.Host.Netns.File(), "", "nft", "flush", "set", "inet", string(owner), set)
	}
	a.Look(third.UID)
	n.eventually("the members", func() bool { return len(n.members()) == 4 })
	n.wantMembers(one, two)
	n.wantWay(third, proxy, direct)
	n.feed <- ambient.Change{Pods: []ambient.Pod{out(two)}}
	n.eventually("that one has left", func() bool { return len(a.Pods()) == 1 })
	n.feed <- ambient.Change{Pods: []ambient.Pod{two}}
	if err := a.Withdraw(t.Context(), func(agent.Pod) {}, one.UID); err != nil {
		t.Error(err)
	}
	n.wantMembers()
	for _, pod := range []ambient.Pod{one, two, third} {
		n.wantWay(pod, proxy, direct)
	}
}

// TestHeldPodWaits has a pod that another form of capture has: its members come when it is its
// turn. Until that form has let go of it, what opens tunnels to its own proxy is left alone.
func TestHeldPodWaits(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	web, other := n.pod(), n.pod()
	proxyPod, proxy := n.proxy()
	stop, err := n.places[web.UID].Serve(15008)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	var held, shared atomic.Bool
	held.Store(true)
	shared.Store(true)
	n.options.Held = func(uid string) bool { return uid == web.UID && held.Load() }
	n.options.InPod = func(uid string) bool { return uid == web.UID && shared.Load() }
	a, _ := n.run()
	n.feed <- told(proxyPod, web, other)
	n.awaitStatus(other.UID, ambient.StatusEnabled)
	waits := func(p agent.Pod) bool { return p.UID == web.UID && p.Step == ambient.StepAwaitTurn }
	n.await("that the pod waits for its turn", func() bool { return slices.ContainsFunc(a.Pods(), waits) })
	n.wantWay(web, proxy, direct)
	held.Store(false)
	a.Look(web.UID)
	n.awaitStatus(web.UID, ambient.StatusEnabled)
	n.wantWay(web, proxy, captured)
	tunnels := func() int {
		proxy.Takings() // forget
		for _, address := range web.Addresses {
			if _, err := n.remote.Visit(t.Context(), "tcp", netip.AddrPortFrom(address, 15008)); err != nil {
				t.Error(err)
			}
		}
		return len(proxy.Takings())
	}
	if taken := tunnels(); taken != 0 {
		t.Errorf("the node's proxy has taken %d tunnels to the proxy in the pod", taken)
	}
	shared.Store(false)
	a.Look(web.UID)
	n.eventually("that tunnels go to the node's proxy", func() bool { return tunnels() == len(web.Addresses) })
	has := func() bool {
		state, err := n.options.Dataplane.Observe(t.Context(), n.options.Host, owner)
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(state.Objects, func(o interception.Object) bool {
			set, is := o.(interception.Set)
			return is && set.Name == ambient.FormerCapture{}.SharedSet(interception.IPv4)
		})
	}
	if !has() {
		t.Error("there is no set of shared pods")
	}
	a.Alone()
	n.eventually("that the set of shared pods is gone", func() bool { return !has() })
	n.wantWay(web, proxy, captured)
}
