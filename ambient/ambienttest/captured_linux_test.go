// SPDX-License-Identifier: Apache-2.0

package ambienttest_test

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest"
	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/internal/namespace"
)

// capturedNode is a node that captures in its own namespace. It has a pod with the proxy, one of
// the mesh, and another.
type capturedNode struct {
	t               *testing.T
	own, web, plain *nodes.Place // own is the proxy's
	proxy           *ambienttest.NodeProxy
	mu              sync.Mutex
	took            []ambienttest.Taken
	fails           []error
}

// captured makes two nodes, with an application at port 8080 of each pod but the proxies', which do
// not listen yet.
func captured(t *testing.T) (all [2]*capturedNode) {
	t.Helper()
	for i, node := range nodes.New(t) {
		pod := func(uid string) *nodes.Place { return node.NewPod(uid, interception.IPv4, interception.IPv6) }
		n := &capturedNode{t: t, own: pod("0001"), web: pod("0002"), plain: pod("0003")}
		for _, place := range []*nodes.Place{n.web, n.plain} {
			serve(t, place, 8080)
		}
		n.capture(node.Host)
		all[i] = n
	}
	return all
}

// capturedBy makes two nodes with proxies.
func capturedBy(t *testing.T, o ambienttest.NodeProxyOptions) [2]*capturedNode {
	t.Helper()
	both := captured(t)
	for _, n := range both {
		n.start(o)
	}
	return both
}

// start starts the node's proxy.
func (n *capturedNode) start(o ambienttest.NodeProxyOptions) {
	n.t.Helper()
	o.Netns, o.Numbers, o.Observe = n.own.Netns, ambient.IstioNodeNumbers(), n.observe
	var err error
	if n.proxy, err = ambienttest.StartNodeProxy(o); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = n.proxy.Close() }) // which returns nil
}

func serve(t *testing.T, place *nodes.Place, port uint16) {
	t.Helper()
	stop, err := place.Serve(port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
}

// capture applies the plans of the node and of the proxy's namespace, and captures the pod.
func (n *capturedNode) capture(host *nodes.Place) {
	n.t.Helper()
	const owner = "test-ambient"
	proxy := ambient.NodeProxy{Addresses: n.own.Addresses, Way: ambient.WayVeth, Namespace: "proxy", DNS: true}
	facts := interception.Facts{IPv6: true, LoopbackIPv6: true}
	onNode, err := ambient.NodePlan(proxy, ambient.IstioNodeNumbers(), facts, owner)
	if err != nil {
		n.t.Fatal(err)
	}
	ofProxy, err := ambient.ProxyPlan(proxy, ambient.IstioNodeNumbers(), facts, owner)
	if err != nil {
		n.t.Fatal(err)
	}
	dataplane, err := nftables.New(nftables.Options{})
	if err != nil {
		n.t.Fatal(err)
	}
	if err := dataplane.Apply(n.t.Context(), host.Netns.With("proxy", n.own.Netns), onNode); err != nil {
		n.t.Fatal(err)
	}
	if err := dataplane.Apply(n.t.Context(), n.own.Netns, ofProxy); err != nil {
		n.t.Fatal(err)
	}
	for _, address := range n.web.Addresses {
		edit := interception.SetEdit{Add: map[netip.Addr]string{address: "0002"}}
		if err := dataplane.UpdateSet(n.t.Context(), host.Netns, owner, ambient.MeshedSet(interception.FamilyOf(address)), edit); err != nil {
			n.t.Fatal(err)
		}
	}
}

func (n *capturedNode) observe(taken ambienttest.Taken, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		n.fails = append(n.fails, err)
		return
	}
	n.took = append(n.took, taken)
}

// seen returns the connections that the proxy has taken since the last call, and those that failed.
func (n *capturedNode) seen() ([]ambienttest.Taken, []error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	took, fails := n.took, n.fails
	n.took, n.fails = nil, nil
	return took, fails
}

// visit asks an application who its client is.
func visit(t *testing.T, from *nodes.Place, network string, to netip.AddrPort) (nodes.Visit, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // a lost packet would take minutes
	defer cancel()
	return from.Visit(ctx, network, to)
}

// dial connects from a place.
func dial(t *testing.T, from *nodes.Place, dialer net.Dialer, to netip.AddrPort) (conn net.Conn, err error) {
	t.Helper()
	err = namespace.Run(from.Netns.File(), func() (err error) {
		conn, err = dialer.DialContext(t.Context(), "tcp", to.String())
		return err
	})
	if err == nil {
		t.Cleanup(func() { _ = conn.Close() })
	}
	return conn, err
}

// in returns a place's address of a family.
func in(place *nodes.Place, family interception.Family) netip.Addr {
	return place.Addresses[slices.IndexFunc(place.Addresses, func(a netip.Addr) bool { return interception.FamilyOf(a) == family })]
}

// eachFamily runs a test with IPv4 and with IPv6.
func eachFamily(t *testing.T, test func(t *testing.T, family interception.Family)) {
	t.Helper()
	for _, family := range []interception.Family{interception.IPv4, interception.IPv6} {
		t.Run(family.String(), func(t *testing.T) {
			t.Parallel()
			test(t, family)
		})
	}
}
