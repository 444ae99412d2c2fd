// SPDX-License-Identifier: Apache-2.0

package ambient_test

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/namespace"
)

// captureOnBoth captures on two nodes, each for a proxy on it.
func captureOnBoth(
	t *testing.T, backend hostBackend, way ambient.Way, start func(testing.TB, *nodes.Place) taker, families ...interception.Family,
) [2]*capturingNode {
	t.Helper()
	var pair [2]*capturingNode
	for i, node := range nodes.New(t) {
		pair[i] = captureOn(t, node, backend, way, start, families...)
	}
	for i, n := range pair {
		n.beyond, n.remote = pair[1-i], pair[1-i].other
	}
	return pair
}

// wantAcross follows the connections from this node to the other: which proxies take them, and what
// the application sees.
func (n *capturingNode) wantAcross(family int) {
	n.t.Helper()
	for _, w := range []struct {
		from, to *nodes.Place
		port     uint16
		by       []interception.Port // the proxies' listeners
	}{
		{n.meshed, n.beyond.meshed, 8080, []interception.Port{15001, 15006}},
		{n.meshed, n.beyond.meshed, 15008, []interception.Port{15001, 15008}},
		{n.meshed, n.beyond.other, 8080, []interception.Port{15001}},
		{n.other, n.beyond.meshed, 8080, []interception.Port{15006}},
		{n.other, n.beyond.meshed, 15008, []interception.Port{15008}},
		{n.proxy, n.beyond.meshed, 8080, []interception.Port{15006}},
		{n.proxy, n.beyond.meshed, 15008, []interception.Port{15008}},
		{n.node.Host, n.beyond.meshed, 8080, []interception.Port{15006}},
		{n.proxy, n.beyond.other, 8080, nil},
		{n.other, n.beyond.other, 8080, nil},
		{n.node.Host, n.beyond.other, 8080, nil},
	} {
		to := netip.AddrPortFrom(w.to.Addresses[family], w.port)
		visit, took, err := n.visit(w.from, "tcp", to)
		n.wantTraced(w.from, "tcp", to, visit, took)
		if err != nil || visit.Server != netip.AddrPortFrom(to.Addr(), 8080) || w.from.Addresses != nil && visit.Client.Addr() != w.from.Addresses[family] {
			n.t.Errorf("%s to %s: the application saw %v, %v", w.from.Name, to, visit, err)
		}
		var by []interception.Port
		for _, taken := range took {
			by = append(by, taken.Port)
		}
		if !slices.Equal(by, w.by) {
			n.t.Errorf("%s to %s: the proxies took %v, want %v", w.from.Name, to, took, w.by)
		}
	}
}

// TestNodesCapture has two nodes that capture, each for a proxy of its own: both proxies see the
// connections between pods of the mesh, in each direction, with the addresses of the pods.
func TestNodesCapture(t *testing.T) {
	t.Parallel()
	for name, backend := range hosts(t) {
		for _, way := range []ambient.Way{ambient.WayVeth, ambient.WayVXLAN} {
			for proxy, start := range proxies() {
				t.Run(name+" "+way.String()+" "+proxy, func(t *testing.T) {
					t.Parallel()
					for _, n := range captureOnBoth(t, backend, way, start, interception.IPv4, interception.IPv6) {
						for family := range 2 {
							n.wantAcross(family)
							n.wantEchoes(family)
							n.wantDatagrams(family)
						}
					}
				})
			}
		}
	}
}

// TestNodesOfOneFamily has nodes whose pods and proxies have addresses of one family alone: all
// ways lead where they do with both families. By VXLAN, the tunnel's ends have addresses of that
// family.
func TestNodesOfOneFamily(t *testing.T) {
	t.Parallel()
	for name, backend := range hosts(t) {
		for _, way := range []ambient.Way{ambient.WayVeth, ambient.WayVXLAN} {
			for _, family := range []interception.Family{interception.IPv4, interception.IPv6} {
				t.Run(name+" "+way.String()+" "+family.String(), func(t *testing.T) {
					t.Parallel()
					n := captureOnBoth(t, backend, way, standIn, family)[0]
					n.wantAcross(0)
					n.wantEchoes(0)
					n.wantDatagrams(0)
					n.apply(ambient.NodeProxy{})
					n.wantEchoes(0)
				})
			}
		}
	}
}

// TestNodesTellEqualConnectionsApart has proxies that open a connection from the port of their
// client: it equals the one that the proxy has taken, from the client's address and port to the
// same destination. Both pass through a node, and both get answers, whichever was the first.
func TestNodesTellEqualConnectionsApart(t *testing.T) {
	t.Parallel()
	for name, backend := range hosts(t) {
		for _, way := range []ambient.Way{ambient.WayVeth, ambient.WayVXLAN} {
			t.Run(name+" "+way.String(), func(t *testing.T) {
				t.Parallel()
				pair := captureOnBoth(t, backend, way, standIn, interception.IPv4, interception.IPv6)
				port := 32768
				for _, n := range pair {
					for family := range 2 {
						for _, w := range []struct {
							from, to  *nodes.Place
							listeners []interception.Port
						}{
							{n.meshed, n.beyond.meshed, []interception.Port{15001, 15006}},
							{n.meshed, n.peer, []interception.Port{15001}},
							{n.other, n.beyond.meshed, []interception.Port{15006}},
							{n.other, n.meshed, []interception.Port{15006}},
						} {
							n.wantAnswered(w.from, w.to, family, port, port, w.listeners)
							n.wantAnswered(w.from, w.to, family, port+1, port+2, w.listeners)
							n.wantAnswered(w.from, w.to, family, port+2, port+3, w.listeners)
							port += 4
						}
					}
				}
			})
		}
	}
}

// wantAnswered opens a connection from a port, and the proxies open theirs from another. It must
// reach the application by the listeners.
func (n *capturingNode) wantAnswered(from, to *nodes.Place, family, client, proxies int, listeners []interception.Port) {
	n.t.Helper()
	for place, port := range map[*nodes.Place]int{from: client, n.proxy: proxies, n.beyond.proxy: proxies} {
		err := namespace.Run(place.Netns.File(), func() error {
			return os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", fmt.Appendf(nil, "%d %d", port, port), 0)
		})
		if err != nil {
			n.t.Fatal(err)
		}
	}
	visit, took, err := n.visit(from, "tcp", netip.AddrPortFrom(to.Addresses[family], 8080))
	var by []interception.Port
	for _, taken := range took {
		by = append(by, taken.Port)
	}
	if err != nil || visit.Client.Addr() != from.Addresses[family] || !slices.Equal(by, listeners) {
		n.t.Errorf("%s to %s: the application saw %v, %v; the proxies took %v, want %v", from.Name, to.Name, visit, err, took, listeners)
	}
}
