// SPDX-License-Identifier: Apache-2.0

package ambientsoak

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest"
	"github.com/meshcni/meshcni/examples/internal/ambientconf"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
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
		{"rules of pods were edited", n.editPods},
		{"routes of pods were removed", n.unroutePods},
		{"the host's rules were flushed", n.flushHost},
		{"the host's rules were edited", func() { n.edit(n.host) }},
		{"members were taken from the host's sets", n.takeMembers},
		{"members of the host's sets were given to others", n.giveMembers},
		{"the API server was away", func() { n.loseServer(false) }},
		{"the API server was away, and node-watcher was killed", func() { n.loseServer(true) }},
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
		p.release()
		n.must(n.dataplane.Remove(n.t.Context(), p.Netns, ambientconf.Owner))
	}
}

func (n *node) editPods() {
	for _, p := range n.some() {
		p.release()
		n.edit(p.namespace)
	}
}

// edit removes one of our rules, or lets all packets pass one of our chains.
func (n *node) edit(in *sandbox.Namespace) {
	kernel, err := nftables.New(nftables.WithNetNSFd(int(in.File().Fd()))) //nolint:gosec // a descriptor is a small number
	n.must(err)
	chains, err := kernel.ListChainsOfTableFamily(nftables.TableFamilyINet)
	n.must(err)
	chains = slices.DeleteFunc(chains, func(c *nftables.Chain) bool { return c.Table.Name == foreignTable })
	chain := chains[n.random.IntN(len(chains))]
	rules, err := kernel.GetRules(chain.Table, chain)
	n.must(err)
	if len(rules) > 0 && n.random.IntN(2) == 0 {
		n.must(kernel.DelRule(rules[n.random.IntN(len(rules))]))
	} else {
		kernel.InsertRule(&nftables.Rule{Table: chain.Table, Chain: chain, Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}})
	}
	n.must(kernel.Flush())
}

// unroutePods removes the routes and policy rules of pods. What their proxy answers then gets lost.
func (n *node) unroutePods() {
	for _, p := range n.some() {
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			table := int(ambient.IstioNumbers().Table)
			routes, err := p.namespace.Netlink().RouteListFiltered(family, &netlink.Route{Table: table}, netlink.RT_FILTER_TABLE)
			n.must(err)
			for i := range routes {
				n.must(p.namespace.Netlink().RouteDel(&routes[i]))
			}
			rules, err := p.namespace.Netlink().RuleListFiltered(family, &netlink.Rule{Table: table}, netlink.RT_FILTER_TABLE)
			n.must(err)
			for i := range rules {
				n.must(p.namespace.Netlink().RuleDel(&rules[i]))
			}
		}
	}
}

// flushHost removes all rules, with those of another program, which then loads its own again.
func (n *node) flushHost() {
	sandboxtest.Run(n.t, n.host.File(), "", "nft", "flush", "ruleset")
	n.others.load()
}

func (n *node) takeMembers() {
	n.editSets(func(p *pod, i int) interception.SetEdit {
		return interception.SetEdit{Remove: map[netip.Addr]string{p.addresses[i]: p.uid}}
	})
}

// giveMembers makes addresses of pods those of pods that do not exist, and adds others.
func (n *node) giveMembers() {
	n.editSets(func(p *pod, i int) interception.SetEdit {
		stranger := fmt.Sprintf("%s-%d", p.uid, i)
		beyond := []netip.Addr{netip.MustParseAddr("192.0.2.0"), netip.MustParseAddr("2001:db8::")}[i]
		for range p.slot {
			beyond = beyond.Next()
		}
		return interception.SetEdit{Add: map[netip.Addr]string{p.addresses[i]: stranger, beyond: stranger}}
	})
}

// editSets edits the host's sets, for some pods and each of their addresses.
func (n *node) editSets(edit func(p *pod, i int) interception.SetEdit) {
	for _, p := range n.some() {
		for i, family := range []interception.Family{interception.IPv4, interception.IPv6} {
			n.must(n.dataplane.UpdateSet(n.t.Context(), n.hostNetns, ambientconf.Owner, ambient.ProbeSet(family), edit(p, i)))
		}
	}
}

// loseServer has the API server refuse everything while rules are removed, which come back.
// Node-watcher, which may be killed meanwhile, cannot feed node-ambient.
func (n *node) loseServer(kill bool) {
	n.cluster.Refuse(http.StatusServiceUnavailable)
	defer n.cluster.Refuse(0)
	if kill {
		n.daemon.kill("node-watcher")
	}
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
