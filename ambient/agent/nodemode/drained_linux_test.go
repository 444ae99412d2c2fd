// SPDX-License-Identifier: Apache-2.0

package nodemode_test

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
	"github.com/meshcni/meshcni/internal/testing/talk"
)

// call opens connections of a pod and to it, of each family.
func (n *node) call(pod ambient.Pod) (open []net.Conn) {
	n.t.Helper()
	for family := range families {
		for _, ends := range [][2]*nodes.Place{{n.places[pod.UID], n.remote}, {n.remote, n.places[pod.UID]}} {
			open = append(open, talk.Call(n.t, ends[0], ends[1].Addresses[family]))
		}
	}
	return open
}

// wantLasting tests that each connection carries a word.
func (n *node) wantLasting(when string, open []net.Conn) {
	n.t.Helper()
	for i, conn := range open {
		if err := talk.Say(conn, fmt.Sprintf("%d %s", i, when)); err != nil {
			n.t.Errorf("%s: connection %d: %v", when, i, err)
		}
	}
}

// TestFormerProxyOutlivesTheNewest has the newest proxy go while the former one is still there, and
// not ready. New connections are refused, and those through the former proxy go on, also after a
// start of the agent and beside the next proxy, until that proxy's pod is gone.
func TestFormerProxyOutlivesTheNewest(t *testing.T) {
	t.Parallel()
	for name, dataplane := range backends(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, dataplane)
			web := n.pod()
			talk.Echo(t, n.remote)
			talk.Echo(t, n.places[web.UID])
			former, proxy := n.proxy()
			newest, newer := n.proxy()
			next, latest := n.proxy()
			a, end := n.run()
			n.feed <- told(former, web)
			n.awaitStatus(web.UID, ambient.StatusEnabled)
			open := n.call(web)
			n.wantLasting("through the former proxy", open)
			if took := proxy.Takings(); len(took) != len(open) {
				t.Fatalf("the former proxy took %v, want all", took)
			}
			former.Ready = false
			n.feed <- ambient.Change{Pods: []ambient.Pod{former, newest}}
			n.eventually("the newest proxy takes connections", n.holds(web, newer, captured))
			n.wantLasting("beside the newest proxy", open)
			n.feed <- ambient.Change{Gone: []string{newest.UID}}
			n.awaitSeen(a, web.UID, ambient.StatusPending)
			n.wantLasting("without the newest proxy", open)
			n.wantWay(web, proxy, refused)
			end()
			_, end = n.run()
			n.feed <- told(former, web)
			n.eventually("the plans are right", func() bool { return n.hasRules(former) && n.isRight() })
			n.wantLasting("after a start", open)
			n.wantWay(web, proxy, refused)
			n.feed <- ambient.Change{Pods: []ambient.Pod{next}}
			n.eventually("the next proxy takes connections", n.holds(web, latest, captured))
			n.wantLasting("beside the next proxy", open)
			n.feed <- ambient.Change{Gone: []string{former.UID}}
			n.eventually("the former proxy has no rules", func() bool { return !n.hasRules(former) })
			n.wantWay(web, latest, captured)
			end()
		})
	}
}

// TestFormerProxyIsNotFound starts an agent that does not find the former proxy of the state file,
// and that has no complete feed. It names that proxy, and leaves what it has alone while all
// stands. Once the rules are gone, those of the present proxy come back.
func TestFormerProxyIsNotFound(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	web := n.pod()
	talk.Echo(t, n.remote)
	talk.Echo(t, n.places[web.UID])
	former, _ := n.proxy()
	newest, proxy := n.proxy()
	_, end := n.run()
	n.feed <- told(former, web)
	n.awaitStatus(web.UID, ambient.StatusEnabled)
	open := n.call(web)
	n.feed <- ambient.Change{Pods: []ambient.Pod{newest}}
	n.eventually("the newest proxy takes connections", n.holds(web, proxy, captured))
	end()
	n.vanish(former.UID)
	stood := n.dump()
	a, _ := n.run()
	incomplete := told(newest, web)
	incomplete.Complete = false
	n.feed <- incomplete
	n.hostErrorIs("find the proxy's pod mesh/" + former.Name)
	n.await("the pod is right", func() bool { return len(a.Pods()) == 1 && a.Pods()[0].Step == "" && a.Pods()[0].Err == nil })
	n.wantLasting("while the former proxy is not found", open)
	if diff := cmp.Diff(stood, n.dump()); diff != "" {
		t.Errorf("the host (-before +after):\n%s", diff)
	}
	sandboxtest.Run(t, n.options.Host.File(), "", "nft", "flush", "ruleset")
	n.eventually("the rules and members are back", n.holds(web, proxy, captured))
	late := n.pod()
	n.feed <- ambient.Change{Pods: []ambient.Pod{late}}
	n.awaitStatus(late.UID, ambient.StatusEnabled)
	n.feed <- ambient.Change{Complete: true}
	n.await("nothing is said of the former proxy", n.isRight)
	n.wantWay(web, proxy, captured)
}

// TestProxyGetsAnotherAddress gives the proxy's pod another address in the same sandbox: what it
// carries goes on, and it serves all the time.
func TestProxyGetsAnotherAddress(t *testing.T) {
	t.Parallel()
	for _, way := range []ambient.Way{ambient.WayVeth, ambient.WayVXLAN} {
		t.Run(way.String(), func(t *testing.T) {
			t.Parallel()
			dataplane := &meddled{backend: backends(t)["nftables"]}
			n := newNode(t, dataplane)
			n.options.Way = way
			dataplane.meddle = func(plan *interception.Plan) error {
				_, isHosts := plan.Set(ambient.MeshedSet(interception.IPv4))
				if isHosts && !has(plan, func(interception.Link) bool { return true }) {
					t.Error("the host is without wires to the proxy for a while")
				}
				return nil
			}
			web := n.pod()
			talk.Echo(t, n.remote)
			talk.Echo(t, n.places[web.UID])
			proxyPod, proxy := n.proxy()
			n.run()
			n.feed <- told(proxyPod, web)
			n.awaitStatus(web.UID, ambient.StatusEnabled)
			open := n.call(web)
			dataplane.armed.Store(true)
			const next = "10.244.1.130"
			in, link := n.places[proxyPod.UID].Peer("eth0")
			sandboxtest.Run(t, n.places[proxyPod.UID].Netns.File(), "", "ip", "address", "add", next+"/32", "dev", "eth0")
			sandboxtest.Run(t, in.Netns.File(), "", "ip", "route", "add", next, "dev", string(link))
			proxyPod.Addresses = []netip.Addr{netip.MustParseAddr(next), proxyPod.Addresses[1]}
			n.feed <- ambient.Change{Pods: []ambient.Pod{proxyPod}}
			n.eventually("the rules have the address", func() bool { return strings.Contains(n.dump(), "ip saddr "+next) && n.isRight() })
			n.wantLasting("with the other address", open)
			n.wantWay(web, proxy, captured)
			n.wantStatuses(web, ambient.StatusEnabled)
		})
	}
}

// isRight reports whether the agent says nothing against the host.
func (n *node) isRight() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.host == nil
}

// TestPresentProxyIsNotFound starts an agent that does not find the proxy of the state file, of
// which the feed goes on to tell. What stands stays as it is. If another program flushes the rules,
// pods that are captured without a proxy, too, are refused connections. The next proxy takes over.
func TestPresentProxyIsNotFound(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	n.options.Closed = true
	web := n.pod()
	present, proxy := n.proxy()
	_, end := n.run()
	n.feed <- told(present, web)
	n.awaitStatus(web.UID, ambient.StatusEnabled)
	end()
	n.vanish(present.UID)
	stood := n.dump()
	n.run()
	n.feed <- told(present, web)
	n.awaitStatus(web.UID, ambient.StatusPending)
	n.hostErrorIs("find the proxy's pod mesh/" + present.Name)
	if now := n.dump(); now != stood {
		t.Errorf("the host has\n%s\nwant\n%s", now, stood)
	}
	n.wantWay(web, proxy, captured)
	sandboxtest.Run(t, n.options.Host.File(), "", "nft", "flush", "ruleset")
	n.eventually("the members are back", func() bool { return len(n.members()) == len(web.Addresses) })
	n.wantWay(web, nil, refused)
	next, newer := n.proxy()
	n.feed <- ambient.Change{Pods: []ambient.Pod{next}}
	n.eventually("the next proxy takes connections", n.holds(web, newer, captured))
	n.awaitStatus(web.UID, ambient.StatusEnabled)
}

// TestNodeGetsAnotherAddress has the node reach its proxy from another address: the tunnels follow.
func TestNodeGetsAnotherAddress(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	n.options.Way, n.options.Round = ambient.WayVXLAN, 50*time.Millisecond
	web := n.pod()
	proxyPod, proxy := n.proxy()
	n.run()
	n.feed <- told(proxyPod, web)
	n.awaitStatus(web.UID, ambient.StatusEnabled)
	n.wantWay(web, proxy, captured)
	const next = "192.0.2.99"
	_, link := n.places[proxyPod.UID].Peer("eth0")
	sandboxtest.Run(t, n.options.Host.File(), "", "ip", "address", "add", next+"/32", "dev", "lo")
	sandboxtest.Run(t, n.options.Host.File(), "", "ip", "route", "replace", proxyPod.Addresses[0].String(), "dev", string(link), "src", next)
	n.eventually("the proxy's tunnels lead there", func() bool {
		links := sandboxtest.Run(t, n.places[proxyPod.UID].Netns.File(), "", "ip", "-d", "link")
		return strings.Count(links, "remote "+next) == 2
	})
	n.eventually("connections go through the proxy", n.holds(web, proxy, captured))
	n.wantWay(web, proxy, captured)
}
