// SPDX-License-Identifier: Apache-2.0

package ambientsoak

import (
	"context"
	"net/http"
	"net/netip"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest"
	"github.com/meshcni/meshcni/examples/internal/ambientconf"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// fault is something that happens to the node.
type fault struct {
	name   string
	happen func()
}

func (n *node) faults() []fault {
	return []fault{
		{"the proxy was killed", n.killProxy},
		{"the proxy was upgraded", n.upgradeProxy},
		{"the proxy has lost listeners", n.loseListeners},
		{"node-ambient was killed", func() { n.daemon.kill("node-ambient") }},
		{"node-watcher was killed", func() { n.daemon.kill("node-watcher") }},
		{"the daemon was killed", func() { n.daemon.kill("install-cni") }},
		{"rules of pods were removed", n.flushPods},
		{"the host's rules were flushed", n.flushHost},
		{"members were taken from the host's sets", n.editSets},
		{"the API server was away", n.loseServer},
		{"the API server's watches expired", n.cluster.Expire},
	}
}

// churn lets some pods go and others come, and changes the labels of some.
func (n *node) churn() {
	for range 1 + *count/10 {
		n.remove(n.pods[n.random.IntN(len(n.pods))])
	}
	for len(n.pods) < *count {
		n.create()
	}
	for range 1 + *count/10 {
		p := n.pods[n.random.IntN(len(n.pods))]
		p.label(!p.meshed)
	}
}

func (n *node) killProxy() {
	_ = n.proxy.Close() // what it says of the agent is for other tests
	n.startProxy()
}

// upgradeProxy starts another proxy, and ends the former one when the new one has all pods.
func (n *node) upgradeProxy() {
	former, complete := n.proxy, make(chan struct{}, 1)
	proxy, err := ambienttest.StartProxy(ambienttest.ProxyOptions{
		Socket: n.path("ztunnel.sock"), Numbers: ambient.IstioNumbers(), Observe: func(e ambienttest.Event) {
			if e.Kind == ambienttest.Complete {
				select {
				case complete <- struct{}{}:
				default:
				}
			}
			n.hear(e)
		},
	})
	n.must(err)
	n.proxy = proxy
	<-complete
	ctx, cancel := context.WithTimeout(n.t.Context(), time.Second)
	defer cancel()
	former.Drain(ctx)
	_ = former.Close() // likewise
}

func (n *node) loseListeners() {
	for _, p := range n.some() {
		n.proxy.LoseListeners(p.uid)
	}
}

// some returns about a tenth of the enrolled pods, and at least one if there is one.
func (n *node) some() (some []*pod) {
	for _, p := range n.pods {
		if p.witnessed != "" && (len(some) == 0 || n.random.IntN(10) == 0) {
			some = append(some, p)
		}
	}
	return some
}

func (n *node) flushPods() { n.flush(n.some()) }

// flush removes the rules of pods. Until they are back, connections may pass uncaptured.
func (n *node) flush(pods []*pod) {
	for _, p := range pods {
		p.judge()
		n.must(n.dataplane.Remove(n.t.Context(), p.Netns, ambientconf.Owner))
	}
}

func (n *node) flushHost() {
	sandboxtest.Run(n.t, n.host.File(), "", "nft", "flush", "ruleset")
}

func (n *node) editSets() {
	for _, p := range n.some() {
		for i, family := range []interception.Family{interception.IPv4, interception.IPv6} {
			edit := interception.SetEdit{Remove: map[netip.Addr]string{p.addresses[i]: p.uid}}
			n.must(n.dataplane.UpdateSet(n.t.Context(), n.hostNetns, ambientconf.Owner, ambient.ProbeSet(family), edit))
		}
	}
}

// loseServer has the API server refuse everything while rules are removed, which come back.
func (n *node) loseServer() {
	n.cluster.Refuse(http.StatusServiceUnavailable)
	defer n.cluster.Refuse(0)
	pods := n.some()
	n.flush(pods)
	n.await("the API server was away, and rules of pods were removed", func() error {
		for _, p := range pods {
			if err := p.rules(); err != nil {
				return err
			}
		}
		return nil
	})
}
