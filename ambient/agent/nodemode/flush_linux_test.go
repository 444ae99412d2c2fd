// SPDX-License-Identifier: Apache-2.0

package nodemode_test

import (
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/ambient/agent/internal/tally/tallytest"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/internal/ipset"
	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// TestFlushOfTheHostIsHealed flushes all rules of the host while a pod is meshed, as a reload of
// firewalld does. The rules and the members are back long before a round, which comes after an
// hour: by the kernel's notice or, with iptables-legacy, as the rules are counted (E3).
func TestFlushOfTheHostIsHealed(t *testing.T) {
	t.Parallel()
	for name, dataplane := range backends(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, dataplane)
			n.options.Round, n.options.ListenerRound, n.options.SettingsRound = time.Hour, time.Hour, time.Hour
			var healed atomic.Int64
			n.options.Count = func(c agent.Count) {
				n.news(func() {
					if c.What == agent.CountHealed && c.Of == "host" {
						healed.Add(int64(c.Times))
					}
				})
			}
			web := n.pod()
			proxyPod, proxy := n.proxy()
			watched := n.runWatched(dataplane)
			n.feed <- told(proxyPod, web)
			n.awaitStatus(web.UID, ambient.StatusEnabled)
			n.wantWay(web, proxy, captured)
			for range 3 {
				n.await("the agent knows all that is there", watched.Settled)
				before, began, stands := healed.Load(), time.Now(), n.ownState()
				n.flushHost(name)
				n.await(fmt.Sprintf("the rules after the flush %d", before+1), func() bool { return healed.Load() > before })
				t.Logf("the rules are back %s after the flush", time.Since(began).Round(time.Millisecond))
				n.eventually("all that the host had of the agent", func() bool { return reflect.DeepEqual(n.ownState(), stands) })
				n.wantMembers(web)
				n.wantWay(web, proxy, captured)
			}
		})
	}
}

// runWatched runs the agent, and returns the dataplane that shows what it counts.
func (n *node) runWatched(dataplane backend) *tallytest.Watched {
	n.t.Helper()
	w := tallytest.Watch(dataplane, func() { n.news(nil) })
	n.options.Dataplane = w
	n.run()
	n.options.Dataplane = dataplane // for the test's own looks
	return w
}

// ownState returns what the host has of the agent.
func (n *node) ownState() interception.State {
	n.t.Helper()
	state, err := n.options.Dataplane.Observe(n.t.Context(), n.options.Host, owner)
	if err != nil {
		n.t.Fatal(err)
	}
	return state
}

// flushHost removes the rules of all programs from the host.
func (n *node) flushHost(dataplane string) {
	n.t.Helper()
	in := n.options.Host.File()
	if dataplane != "iptables-"+string(iptables.Legacy) {
		sandboxtest.Run(n.t, in, "", "nft", "flush", "ruleset")
		return
	}
	for _, program := range []string{"iptables-legacy-restore", "ip6tables-legacy-restore"} {
		sandboxtest.Run(n.t, in, "*raw\nCOMMIT\n*mangle\nCOMMIT\n*nat\nCOMMIT\n*filter\nCOMMIT\n", program)
	}
}

// TestFlushOfSetsIsHealed empties the ipsets of the host, of which the kernel gives no notice.
func TestFlushOfSetsIsHealed(t *testing.T) {
	t.Parallel()
	for _, flavour := range []iptables.Flavour{iptables.NFT, iptables.Legacy} {
		name := "iptables-" + string(flavour)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, backends(t)[name])
			n.options.Round, n.options.ListenerRound, n.options.SettingsRound = time.Hour, time.Hour, time.Hour
			web := n.pod()
			proxyPod, proxy := n.proxy()
			watched := n.runWatched(backends(t)[name])
			n.feed <- told(proxyPod, web)
			n.awaitStatus(web.UID, ambient.StatusEnabled)
			n.await("the agent knows all that is there", watched.Settled)
			n.emptySets()
			n.await("the members", func() bool { return len(n.members()) == len(web.Addresses) })
			n.wantMembers(web)
			n.wantWay(web, proxy, captured)
		})
	}
}

// emptySets removes all members of all ipsets of the host.
func (n *node) emptySets() {
	n.t.Helper()
	socket, err := ipset.Dial(kernel.Of(n.options.Host.File()))
	if err != nil {
		n.t.Fatal(err)
	}
	defer func() { _ = socket.Close() }() // nothing is pending
	names, err := socket.Names()
	if err != nil {
		n.t.Fatal(err)
	}
	for _, name := range names {
		set, err := socket.Read(name)
		if errors.Is(err, fs.ErrNotExist) { // the agent has a second one for a moment
			continue
		}
		for _, m := range set.Members {
			err = errors.Join(err, socket.Delete(name, m))
		}
		if err != nil {
			n.t.Fatal(err)
		}
	}
}

// TestFailedCount has the node's rules stand while they cannot be counted. The agent says so until
// it counts them again, long before a round.
func TestFailedCount(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	watched := tallytest.Watch(backends(t)["nftables"], func() {})
	watched.Fail(true)
	n.options.ListenerRound, n.options.SettingsRound, n.options.Dataplane = time.Hour, time.Hour, watched
	web := n.pod()
	proxyPod, proxy := n.proxy()
	says := func(want error) func() bool {
		return func() bool {
			n.mu.Lock()
			defer n.mu.Unlock()
			return errors.Is(n.host, want)
		}
	}
	n.run()
	n.feed <- told(proxyPod, web)
	n.awaitStatus(web.UID, ambient.StatusEnabled)
	n.wantWay(web, proxy, captured)
	n.await("an error about the count", says(tallytest.ErrBroken))
	watched.Fail(false)
	n.await("no error", says(nil))
}
