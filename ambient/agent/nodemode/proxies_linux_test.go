// SPDX-License-Identifier: Apache-2.0

package nodemode_test

import (
	"context"
	"flag"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

var replacements = flag.Int("replacements", 3, "how many proxies of a node are replaced under load, by each dataplane")

// TestProxyIsReplaced has newer proxies take the place of older ones under load, by each way. No
// connection is refused or gets lost, and none goes past the proxies. A former proxy has its rules
// until its pod is gone, and then nothing is left of it.
func TestProxyIsReplaced(t *testing.T) {
	t.Parallel()
	for name, dataplane := range backends(t) {
		for _, of := range []ambient.Way{ambient.WayVeth, ambient.WayVXLAN} {
			if name != "nftables" && of == ambient.WayVXLAN {
				continue // the ways differ in the plans, and not in how they are applied
			}
			t.Run(name+" "+of.String(), func(t *testing.T) {
				t.Parallel()
				n := newNode(t, dataplane)
				n.options.Way = of
				web := n.pod()
				former, proxy := n.proxy()
				n.run()
				n.feed <- told(former, web)
				n.awaitStatus(web.UID, ambient.StatusEnabled)
				n.wantWay(web, proxy, captured)
				proxy.Takings() // forget
				taken := 0
				take := func(p *nodes.Proxy) int {
					more := len(p.Takings())
					taken += more
					return more
				}
				made, end := n.load(web)
				pods, proxies := []ambient.Pod{former}, []*nodes.Proxy{proxy}
				for round := range *replacements {
					if at := round + 1; at < proxyPods {
						next, newer := n.proxy()
						pods, proxies = append(pods, next), append(proxies, newer)
					}
					at := (round + 1) % proxyPods
					pods[at].Created = time.Unix(int64(1000+round), 0)
					next, newer := pods[at], proxies[at]
					take(newer)
					n.feed <- ambient.Change{Pods: []ambient.Pod{next}}
					n.eventually("the newer proxy takes connections", func() bool { return take(newer) > 0 })
					if !n.hasRules(former) {
						t.Error("the former proxy has no rules, and may have connections")
					}
					before := made.count.Load()
					n.eventually("connections through the former proxy end", func() bool { return made.count.Load() > before })
					n.feed <- ambient.Change{Gone: []string{former.UID}}
					n.eventually("the former proxy has no rules", func() bool { return !n.hasRules(former) })
					former, proxy = next, newer
				}
				end()
				for _, p := range proxies {
					take(p)
				}
				if all := int(made.count.Load()); taken != all {
					t.Errorf("the proxies took %d of %d connections: the others went past them", taken, all)
				}
				t.Logf("%d replacements, %d connections, of which the longest took %s", *replacements, made.count.Load(), time.Duration(made.longest.Load()))
				n.wantWay(web, proxy, captured)
				n.mu.Lock()
				defer n.mu.Unlock()
				if n.host != nil || !slices.Equal(n.statuses[web.UID], []ambient.Status{ambient.StatusEnabled}) {
					t.Errorf("statuses %q, and of the host the agent says %v", n.statuses[web.UID], n.host)
				}
			})
		}
	}
}

// proxyPods is how many pods the proxies of TestProxyIsReplaced have. A node of the tests has no
// room for a hundred: a proxy that follows has the pod of an earlier one, created anew.
const proxyPods = 8

// connections are those of a load that have ended: how many, and the nanoseconds of the longest.
type connections struct{ count, longest atomic.Int64 }

// load makes one connection of a pod after the other until end is called.
func (n *node) load(pod ambient.Pod) (made *connections, end func()) {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	made = new(connections)
	var busy sync.WaitGroup
	from := n.places[pod.UID]
	busy.Go(func() {
		pace := time.NewTicker(40 * time.Millisecond)
		defer pace.Stop()
		// A pod has 500 ports for each address that it connects to, and a port is free after a minute.
		to := slices.Concat(n.remote.Addresses, n.second.Addresses)
		for i := 0; ctx.Err() == nil; i++ {
			<-pace.C
			patience, enough := context.WithTimeout(context.Background(), 30*time.Second)
			begin := time.Now()
			if _, err := from.Visit(patience, "tcp", netip.AddrPortFrom(to[i%len(to)], 8080)); err != nil {
				n.t.Errorf("connection %d to %s: %v", i, to[i%len(to)], err)
			}
			enough()
			made.longest.Store(max(made.longest.Load(), int64(time.Since(begin))))
			made.count.Add(1)
		}
	})
	end = func() { cancel(); busy.Wait() }
	n.t.Cleanup(end)
	return made, end
}

// hasRules reports whether the owner has anything in a pod's namespace.
func (n *node) hasRules(pod ambient.Pod) bool {
	n.t.Helper()
	state, err := n.options.Dataplane.Observe(n.t.Context(), n.places[pod.UID].Netns, owner)
	if err != nil {
		n.t.Fatal(err)
	}
	return len(state.Objects) > 0
}

// TestProxyIsGone has connections of enrolled pods refused while there is no proxy, and no others.
// A proxy that is not ready any more stays until another one is ready.
func TestProxyIsGone(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	web, other := n.pod(), out(n.pod())
	first, proxy := n.proxy()
	a, _ := n.run()
	n.feed <- told(first, web, other)
	n.awaitStatus(web.UID, ambient.StatusEnabled)
	first.Ready = false
	n.feed <- ambient.Change{Pods: []ambient.Pod{first}}
	n.wantWay(web, proxy, captured)
	n.feed <- ambient.Change{Gone: []string{first.UID}}
	n.awaitSeen(a, web.UID, ambient.StatusPending)
	n.wantWay(web, proxy, refused)
	n.wantWay(other, proxy, direct)
	n.wantMembers(web)
	late := n.pod()
	n.feed <- ambient.Change{Pods: []ambient.Pod{late}}
	n.wantWay(late, proxy, direct) // it was not captured before
	second, successor := n.proxy()
	n.feed <- ambient.Change{Pods: []ambient.Pod{second}}
	n.awaitSeen(a, web.UID, ambient.StatusEnabled)
	n.awaitStatus(late.UID, ambient.StatusEnabled)
	n.wantWay(web, successor, captured)
	n.wantWay(late, successor, captured)
	successor.Stop()
	n.awaitSeen(a, web.UID, ambient.StatusPending)
	n.wantMembers(web, late)
}

// TestClosed captures pods before there is a proxy.
func TestClosed(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	n.options.Closed = true
	web := n.pod()
	n.run()
	n.feed <- told(web)
	n.awaitStatus(web.UID, ambient.StatusPending)
	n.eventually("connections are refused", n.holds(web, nil, refused))
}

// TestBadProxies has pods that claim to be the proxy, and cannot be. Each is named with the reason,
// and the proxy that there is goes on.
func TestBadProxies(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	web := n.pod()
	good, proxy := n.proxy()
	older, _ := n.proxy()
	older.Created = good.Created.Add(-time.Hour)
	stranger, _ := n.proxy()
	stranger.Namespace = "shop"
	n.run()
	n.feed <- told(good, older, stranger, web)
	n.awaitStatus(web.UID, ambient.StatusEnabled)
	n.wantWay(web, proxy, captured)
	silent, addressless, onHost, elsewhere := n.silentProxy(families...), n.silentProxy(families...), n.silentProxy(families...), n.silentProxy(families...)
	addressless.Addresses, onHost.HostNetwork, elsewhere.UID = nil, true, "another-node"
	stands := n.dump()
	for text, bad := range map[string]ambient.Pod{
		"it does not listen on the ports 15001, 15006 and 15008": silent,
		"it has no address":               addressless,
		"it is in the node's own":         onHost,
		"an address alone proves nothing": elsewhere,
	} {
		n.feed <- ambient.Change{Pods: []ambient.Pod{bad}}
		n.hostErrorIs(text)
		n.feed <- ambient.Change{Gone: []string{bad.UID}}
		n.await("the host is as it should be", func() bool {
			n.mu.Lock()
			defer n.mu.Unlock()
			return n.host == nil
		})
	}
	n.wantWay(web, proxy, captured)
	if now := n.dump(); now != stands {
		t.Errorf("the host has changed:\n%s\nwant\n%s", now, stands)
	}
}

// TestBadAddresses refuses pods that cannot be captured by their addresses, and says why.
func TestBadAddresses(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	web := n.pod()
	proxyPod := n.silentProxy(interception.IPv4)
	proxy := startOn(n, proxyPod)
	a, _ := n.run()
	n.feed <- told(proxyPod, web)
	n.awaitStatus(web.UID, ambient.StatusEnabled)
	gateway := n.places[web.UID].Addresses[0].Prev()
	for text, addresses := range map[string][]netip.Addr{
		gateway.String() + " is an address of the node": {gateway},
		"is also an address of the proxy":               proxyPod.Addresses,
		"is also an address of pod shop/" + web.Name:    web.Addresses[:1],
	} {
		bad := ambient.Pod{Phase: "Running", Addresses: addresses, Pod: web.Pod}
		bad.UID, bad.Name = "bad", "bad"
		n.feed <- ambient.Change{Pods: []ambient.Pod{bad}}
		n.await("an error with "+text, func() bool {
			return slices.ContainsFunc(a.Status("bad").Pods, func(p agentPod) bool { return errorHas(p.Err, text) })
		})
		n.feed <- ambient.Change{Gone: []string{"bad"}}
		n.await("the pod is gone", func() bool { return len(a.Pods()) == 1 })
	}
	n.wantMembers(web)
	if got, err := n.connect(n.places[web.UID], ipv4(n.remote), proxy); err != nil || got != captured {
		t.Errorf("%d, %v, want that the pod is captured", got, err)
	}
}

// TestHealed has other programs remove the rules, an interface, a route and a member, and add one.
// All is restored, and nothing of others.
func TestHealed(t *testing.T) {
	t.Parallel()
	for name, dataplane := range backends(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, dataplane)
			if name != "nftables" { // neither iptables-legacy nor ipset sends notices
				n.options.Round = 50 * time.Millisecond
			}
			web := n.pod()
			proxyPod, proxy := n.proxy()
			n.run()
			n.feed <- told(proxyPod, web)
			n.awaitStatus(web.UID, ambient.StatusEnabled)
			n.wantWay(web, proxy, captured)
			stands := n.dump()
			inside := n.places[proxyPod.UID].Netns
			for what, harm := range map[string]func(){
				"the host's rules":  func() { n.harm(n.options.Dataplane.Remove(t.Context(), n.options.Host, owner)) },
				"the proxy's rules": func() { n.harm(n.options.Dataplane.Remove(t.Context(), inside, owner)) },
				"an interface":      func() { sandboxtest.Run(t, n.options.Host.File(), "", "ip", "link", "del", "istioout") },
				"a route":           func() { sandboxtest.Run(t, n.options.Host.File(), "", "ip", "route", "flush", "table", "101") },
				"a member":          func() { n.edit(interception.SetEdit{Remove: map[netip.Addr]string{web.Addresses[0]: web.UID}}) },
				"another member": func() {
					n.edit(interception.SetEdit{Add: map[netip.Addr]string{netip.MustParseAddr("10.244.1.200"): "stranger"}})
				},
			} {
				harm()
				t.Log(what)
				n.eventually(what+" restored", func() bool { return len(n.members()) == 2 && cmp.Diff(stands, n.dump()) == "" })
				n.eventually("connections are captured", n.holds(web, proxy, captured))
			}
			n.wantMembers(web)
		})
	}
}

func (n *node) harm(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// edit edits the set of IPv4 as another program may.
func (n *node) edit(edit interception.SetEdit) {
	n.t.Helper()
	n.harm(n.options.Sets.UpdateSet(n.t.Context(), n.options.Host, owner, ambient.MeshedSet(interception.IPv4), edit))
}
