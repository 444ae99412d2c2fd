// SPDX-License-Identifier: Apache-2.0

package ambient_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest"
	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/haproxy"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
	"github.com/meshcni/meshcni/internal/testing/talk"
)

// capturingNode is a node that captures for a proxy in a pod of its own.
type capturingNode struct {
	t       *testing.T
	backend hostBackend
	node    *nodes.Node
	proxy   *nodes.Place
	relay   taker
	current ambient.NodeProxy // of the plan that was applied last
	also    *nodes.Place      // the proxy's successor
	// meshed and peer are pods of the mesh and other is none, on the node; remote is on another.
	meshed, peer, other, remote *nodes.Place
	beyond                      *capturingNode // the other node; nil if that captures nothing
}

// taker is a proxy that tells which connections it has taken since the last call.
type taker interface{ Takings() []ambienttest.Taken }

// newCapturingNode makes two nodes with an application in each pod, and captures on the first for
// the stand-in.
func newCapturingNode(t *testing.T, backend hostBackend, way ambient.Way) *capturingNode {
	t.Helper()
	return newCapturingNodeFor(t, backend, way, standIn)
}

func standIn(t testing.TB, pod *nodes.Place) taker {
	t.Helper()
	return pod.StartProxy(t)
}

// newCapturingNodeFor captures for another proxy.
func newCapturingNodeFor(t *testing.T, backend hostBackend, way ambient.Way, start func(testing.TB, *nodes.Place) taker) *capturingNode {
	t.Helper()
	both := nodes.New(t)
	n := captureOn(t, both[0], backend, way, start, interception.IPv4, interception.IPv6)
	n.remote = applicationPod(t, both[1], "0005", interception.IPv4, interception.IPv6)
	return n
}

func applicationPod(t *testing.T, node *nodes.Node, uid string, families ...interception.Family) *nodes.Place {
	t.Helper()
	place := node.NewPod(uid, families...)
	serve(t, place)
	return place
}

// captureOn captures on a node, whose pods have the families.
func captureOn(
	t *testing.T, node *nodes.Node, backend hostBackend, way ambient.Way, start func(testing.TB, *nodes.Place) taker,
	families ...interception.Family,
) *capturingNode {
	t.Helper()
	pod := func(uid string) *nodes.Place { return applicationPod(t, node, uid, families...) }
	n := &capturingNode{
		t: t, backend: backend, node: node, proxy: pod("0001"), meshed: pod("0002"), peer: pod("0003"), other: pod("0004"),
	}
	serve(t, n.node.Host)
	resolver, err := n.proxy.Serve(15053)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(resolver)
	n.relay = start(t, n.proxy)
	first := proxyAt(n.proxy, way)
	n.apply(first)
	n.prepare(n.proxy, first)
	for _, member := range []*nodes.Place{n.meshed, n.peer} {
		for _, address := range member.Addresses {
			enter(t, backend, n.node.Host.Netns, "test-ambient", address)
		}
	}
	return n
}

// proxyAt describes a pod as the proxy of its node.
func proxyAt(pod *nodes.Place, way ambient.Way) ambient.NodeProxy {
	return ambient.NodeProxy{
		Addresses: pod.Addresses, Way: way, Namespace: "first", DNS: true,
		Node: pod.Addresses[0].Prev(), // the node's end of the wire to the pod
	}
}

// apply applies the plan of the node.
func (n *capturingNode) apply(proxy ambient.NodeProxy, others ...ambient.NodeProxy) {
	n.t.Helper()
	handle := n.node.Host.Netns.With("first", n.proxy.Netns)
	if n.also != nil {
		handle = handle.With("second", n.also.Netns)
	}
	plan, err := ambient.NodePlan(proxy, ambient.IstioNodeNumbers(), bothFamilies(), "test-ambient", others...)
	if err != nil {
		n.t.Fatal(err)
	}
	install(n.t, n.backend, handle, plan)
	n.current = proxy
}

// prepare applies the plan of a proxy's namespace.
func (n *capturingNode) prepare(pod *nodes.Place, proxy ambient.NodeProxy) {
	n.t.Helper()
	plan, err := ambient.ProxyPlan(proxy, ambient.IstioNodeNumbers(), bothFamilies(), "test-ambient")
	if err != nil {
		n.t.Fatal(err)
	}
	install(n.t, n.backend, pod.Netns, plan)
}

// visit connects to an application, and returns what it says and what the proxy has taken
// meanwhile.
func (n *capturingNode) visit(from *nodes.Place, network string, to netip.AddrPort) (nodes.Visit, []ambienttest.Taken, error) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), 30*time.Second) // a lost packet would take minutes
	defer cancel()
	relays := []taker{n.relay}
	if n.beyond != nil {
		relays = append(relays, n.beyond.relay)
	}
	for _, relay := range relays {
		relay.Takings() // forget
	}
	visit, err := from.Visit(ctx, network, to)
	var took []ambienttest.Taken
	for _, relay := range relays {
		took = append(took, relay.Takings()...)
	}
	return visit, took, err
}

// proxies are those to which all ways must lead: the stand-in, and one that knows nothing of the
// mesh.
func proxies() map[string]func(testing.TB, *nodes.Place) taker {
	return map[string]func(testing.TB, *nodes.Place) taker{
		"stand-in": standIn,
		"HAProxy": func(t testing.TB, pod *nodes.Place) taker {
			t.Helper()
			return haproxy.Start(t, pod)
		},
	}
}

// missingCells are the cells that the table of TestNodeCapture does not have, with the causes.
func missingCells() map[string]string {
	return map[string]string{
		"in the pod, HAProxy":  "the rules in pods know a proxy's connections by a mark, and HAProxy sets none",
		"in the pod, stand-in": "it listens in the pods: package agent tests it with all backends",
		"GENEVE":               "the plan has no such way: what Istio 1.18 to 1.20 made is only taken over",
	}
}

// capturingCells is how many cells the table has: three backends, two ways of the wires, and two
// proxies.
const capturingCells = 3 * 2 * 2

// TestNodeCapture sends real packets all ways, over both families: a table of the forms of capture
// and the proxies, which do not depend on each other. It prints the cells, and those that it lacks.
func TestNodeCapture(t *testing.T) {
	t.Parallel()
	var cells []string
	for name, backend := range hosts(t) {
		for _, way := range []ambient.Way{ambient.WayVeth, ambient.WayVXLAN} {
			for proxy, start := range proxies() {
				cell := name + ", " + way.String() + ", " + proxy
				cells = append(cells, cell)
				t.Run(cell, func(t *testing.T) {
					t.Parallel()
					n := newCapturingNodeFor(t, backend, way, start)
					for _, family := range []int{0, 1} {
						n.wantWays(family)
						n.wantEchoes(family)
					}
					n.apply(ambient.NodeProxy{})
					for _, family := range []int{0, 1} {
						n.wantClosed(family)
						n.wantEchoes(family)
					}
				})
			}
		}
	}
	slices.Sort(cells)
	t.Logf("%d cells: %s", len(cells), strings.Join(cells, "; "))
	for cell, cause := range missingCells() {
		t.Logf("no cell %s: %s", cell, cause)
	}
	if len(cells) != capturingCells {
		t.Errorf("the table has %d cells, want %d", len(cells), capturingCells)
	}
}

// wantWays follows the connections of one family: who takes them, and what the application sees.
func (n *capturingNode) wantWays(family int) {
	n.t.Helper()
	for name, w := range map[string]struct {
		from, to *nodes.Place
		port     uint16
		by       interception.Port // the proxy's listener, if it takes the connection
	}{
		"outbound":                {n.meshed, n.remote, 8080, 15001},
		"outbound, same node":     {n.meshed, n.peer, 8080, 15001},
		"outbound, no mesh":       {n.meshed, n.other, 8080, 15001},
		"inbound":                 {n.remote, n.meshed, 8080, 15006},
		"inbound, same node":      {n.other, n.meshed, 8080, 15006},
		"inbound, tunnelled":      {n.remote, n.meshed, 15008, 15008},
		"proxy's own":             {n.proxy, n.remote, 8080, 0},
		"proxy's own, to a pod":   {n.proxy, n.meshed, 8080, 0},
		"from the node":           {n.node.Host, n.meshed, 8080, 0},
		"of no pod of the mesh":   {n.other, n.remote, 8080, 0},
		"to no pod of the mesh":   {n.remote, n.other, 8080, 0},
		"to the proxy's own port": {n.other, n.proxy, 8080, 0},
	} {
		to := netip.AddrPortFrom(w.to.Addresses[family], w.port)
		visit, took, err := n.visit(w.from, "tcp", to)
		n.wantTraced(w.from, "tcp", to, visit, took)
		if err != nil || visit.Server != netip.AddrPortFrom(to.Addr(), 8080) || w.from.Addresses != nil && visit.Client.Addr() != w.from.Addresses[family] {
			n.t.Errorf("%s, to %s: the application saw %v, %v", name, to, visit, err)
		}
		switch {
		case w.by == 0 && len(took) > 0, w.by != 0 && len(took) != 1:
			n.t.Errorf("%s, to %s: the proxy took %v", name, to, took)
		case w.by != 0 && (took[0].Port != w.by || took[0].To != to || took[0].From.Addr() != w.from.Addresses[family]):
			n.t.Errorf("%s, to %s: the proxy took %v, want %d", name, to, took, w.by)
		}
	}
	gateway := n.meshed.Addresses[family].Prev()
	if visit, took, err := n.visit(n.meshed, "tcp", netip.AddrPortFrom(gateway, 8080)); err != nil || len(took) > 0 {
		n.t.Errorf("a pod to the node: %v, %v, and the proxy took %v", visit, err, took)
	} else {
		n.wantTraced(n.meshed, "tcp", netip.AddrPortFrom(gateway, 8080), visit, took)
	}
	n.wantDatagrams(family)
}

// wantDatagrams has UDP pass, and queries reach the proxy's resolver.
func (n *capturingNode) wantDatagrams(family int) {
	n.t.Helper()
	application := func(of *nodes.Place) netip.AddrPort { return netip.AddrPortFrom(of.Addresses[family], 8080) }
	for name, w := range map[string]struct {
		from   *nodes.Place
		to     netip.AddrPort
		server netip.AddrPort
	}{
		"a datagram":              {n.meshed, application(n.remote), application(n.remote)},
		"a datagram to a pod":     {n.remote, application(n.meshed), application(n.meshed)},
		"a datagram, same node":   {n.meshed, application(n.peer), application(n.peer)},
		"a datagram, no mesh":     {n.other, application(n.remote), application(n.remote)},
		"a datagram from outside": {n.other, application(n.meshed), application(n.meshed)},
		"a query":                 {n.meshed, netip.AddrPortFrom(n.remote.Addresses[family], 53), netip.AddrPortFrom(n.proxy.Addresses[family], 15053)},
	} {
		visit, took, err := n.visit(w.from, "udp", w.to)
		n.wantTraced(w.from, "udp", w.to, visit, took)
		if err != nil || visit.Server != w.server || visit.Client.Addr() != w.from.Addresses[family] {
			n.t.Errorf("%s to %s: %v, %v, want an answer of %s", name, w.to, visit, err, w.server)
		}
	}
}

// wantClosed expects that without a proxy connections of meshed pods fail at once, and no others.
func (n *capturingNode) wantClosed(family int) {
	n.t.Helper()
	for name, w := range map[string]struct {
		from, to *nodes.Place
		refused  bool
	}{
		"outbound":      {n.meshed, n.remote, true},
		"same node":     {n.meshed, n.peer, true},
		"inbound":       {n.remote, n.meshed, true},
		"from the node": {n.node.Host, n.meshed, false},
		"no mesh":       {n.other, n.remote, false},
		"to no mesh":    {n.remote, n.other, false},
	} {
		to := netip.AddrPortFrom(w.to.Addresses[family], 8080)
		visit, took, err := n.visit(w.from, "tcp", to)
		n.wantTraced(w.from, "tcp", to, visit, took)
		if errors.Is(err, syscall.ECONNREFUSED) != w.refused || err != nil && !w.refused || len(took) > 0 {
			n.t.Errorf("without a proxy, %s to %s: %v, %v", name, to, visit, err)
		}
	}
}

// TestNodeChangesProxies takes the steps from one proxy to its successor. Each new connection
// reaches the one whose mark it gets, and those through the former proxy last until its wires go.
func TestNodeChangesProxies(t *testing.T) {
	t.Parallel()
	for name, backend := range hosts(t) {
		for _, way := range []ambient.Way{ambient.WayVeth, ambient.WayVXLAN} {
			t.Run(name+" "+way.String(), func(t *testing.T) {
				t.Parallel()
				n := newCapturingNode(t, backend, way)
				n.also = n.node.NewPod("0006", interception.IPv4, interception.IPv6)
				former, successor := proxyAt(n.proxy, way), proxyAt(n.also, way)
				successor.Generation, successor.Namespace = 1, "second"
				relays := []taker{n.relay, standIn(t, n.also)}
				wantRelay := func(step string, want int) {
					t.Helper()
					n.relay = relays[want]
					relays[1-want].Takings() // forget
					for family := range 2 {
						for _, ends := range [][2]*nodes.Place{{n.meshed, n.remote}, {n.remote, n.meshed}} {
							to := netip.AddrPortFrom(ends[1].Addresses[family], 8080)
							visit, took, err := n.visit(ends[0], "tcp", to)
							if err != nil || len(took) != 1 || len(relays[1-want].Takings()) > 0 {
								t.Errorf("%s, to %s: %v, %v, and the proxy took %v", step, to, visit, err, took)
							}
						}
					}
				}
				talk.Echo(t, n.remote)
				talk.Echo(t, n.meshed)
				through := map[int][]net.Conn{} // by the relay
				open := func(relay int) {
					for family := range 2 {
						through[relay] = append(through[relay],
							talk.Call(t, n.meshed, n.remote.Addresses[family]), talk.Call(t, n.remote, n.meshed.Addresses[family]))
					}
				}
				wantRelay("before", 0)
				open(0)
				wantLasting(t, "before", through[0])
				n.apply(former, successor)
				n.prepare(n.also, successor)
				wantRelay("with the successor's wires", 0)
				wantLasting(t, "with the successor's wires", through[0])
				n.apply(successor, former)
				wantRelay("with the successor's mark", 1)
				open(1)
				wantLasting(t, "with the successor's mark", slices.Concat(through[0], through[1]))
				n.apply(successor)
				wantRelay("without the former wires", 1)
				wantLasting(t, "without the former wires", through[1])
				for _, conn := range through[0] {
					if err := talk.Say(conn, "former"); err == nil {
						t.Errorf("without the former wires: a connection of %s goes on", conn.LocalAddr())
					}
				}
			})
		}
	}
}

// wantLasting expects each connection to an echo to carry a word.
func wantLasting(t *testing.T, step string, open []net.Conn) {
	t.Helper()
	for _, conn := range open {
		if err := talk.Say(conn, step); err != nil {
			t.Errorf("%s: the connection from %s to %s: %v", step, conn.LocalAddr(), conn.RemoteAddr(), err)
		}
	}
}

// TestProxyLearnsOfErrors has the proxy connect, in a pod's name, to an address that no router
// knows. The error is sent to the pod's address.
func TestProxyLearnsOfErrors(t *testing.T) {
	t.Parallel()
	for name, backend := range hosts(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var relay *nodes.Proxy
			n := newCapturingNodeFor(t, backend, ambient.WayVeth, func(t testing.TB, pod *nodes.Place) taker {
				t.Helper()
				relay = pod.StartProxy(t)
				return relay
			})
			for family := range 2 {
				unknown := n.remote.Addresses[family].Next().Next().Next().Next()
				if visit, took, err := n.visit(n.meshed, "tcp", netip.AddrPortFrom(unknown, 8080)); err == nil || len(took) != 1 {
					t.Errorf("to %s: %v, %v, and the proxy took %v", unknown, visit, err, took)
				}
			}
			fails := relay.Failures()
			for _, err := range fails {
				if !errors.Is(err, syscall.ENETUNREACH) && !errors.Is(err, syscall.EHOSTUNREACH) {
					t.Errorf("the proxy learns that %v", err)
				}
			}
			if len(fails) != 2 {
				t.Errorf("%d errors, want one of each family", len(fails))
			}
		})
	}
}

// TestNodeBesideOthers has rules of other programs in iptables that translate, masquerade and
// reject. What the proxy gets of a captured connection is as the pod has sent it.
func TestNodeBesideOthers(t *testing.T) {
	t.Parallel()
	for name, backend := range hosts(t) {
		flavour, is := strings.CutPrefix(name, "iptables ")
		if !is {
			continue // NodePlan says what nf_tables cannot do
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newCapturingNode(t, backend, ambient.WayVeth)
			for family, program := range []string{"iptables-", "ip6tables-"} {
				pod, service, endpoint := n.meshed.Addresses[family], netip.AddrPortFrom(n.remote.Addresses[family], 9090), n.other.Addresses[family]
				for _, rule := range []string{
					fmt.Sprintf("-t nat -A PREROUTING -d %s -p tcp --dport 9090 -j DNAT --to %s", service.Addr(), netip.AddrPortFrom(endpoint, 8080)),
					fmt.Sprintf("-t nat -A POSTROUTING -s %s -d %s -j MASQUERADE", pod, service.Addr()),
					fmt.Sprintf("-t filter -A FORWARD -s %s -d %s -j REJECT", pod, service.Addr()),
				} {
					sandboxtest.Run(t, n.node.Host.Netns.File(), "", append([]string{program + flavour}, strings.Fields(rule)...)...)
				}
				visit, took, err := n.visit(n.meshed, "tcp", service)
				if err != nil || visit.Server.Addr() != endpoint || len(took) != 1 || took[0].To != service || took[0].From.Addr() != pod {
					t.Errorf("to %s: %v, %v, and the proxy took %v", service, visit, err, took)
				}
			}
		})
	}
}

// translators returns the programs of iptables, one for each family, with which another program
// translates addresses beside a backend.
func translators(backend string) [2]string {
	flavour := "nft"
	if backend == "iptables legacy" {
		flavour = "legacy"
	}
	return [2]string{"iptables-" + flavour, "ip6tables-" + flavour}
}

// TestNodeBesideMasquerading has another program masquerade what a meshed pod sends and what is
// sent to it, as networks do with what leaves them and kube-proxy with node ports. The proxy gets
// captured connections with the addresses of their clients.
func TestNodeBesideMasquerading(t *testing.T) {
	t.Parallel()
	for name, backend := range hosts(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newCapturingNode(t, backend, ambient.WayVeth)
			for family, program := range translators(name) {
				pod := n.meshed.Addresses[family].String()
				for _, of := range []string{"-s " + pod, "-d " + pod} {
					line := append([]string{program, "-t", "nat", "-A", "POSTROUTING", "-j", "MASQUERADE"}, strings.Fields(of)...)
					sandboxtest.Run(t, n.node.Host.Netns.File(), "", line...)
				}
				for _, ends := range [][2]*nodes.Place{{n.meshed, n.remote}, {n.meshed, n.peer}, {n.remote, n.meshed}, {n.other, n.meshed}} {
					to := netip.AddrPortFrom(ends[1].Addresses[family], 8080)
					visit, took, err := n.visit(ends[0], "tcp", to)
					if err != nil || visit.Server != to || len(took) != 1 || took[0].To != to || took[0].From.Addr() != ends[0].Addresses[family] {
						t.Errorf("%s to %s: %v, %v, and the proxy took %v", ends[0].Name, to, visit, err, took)
					}
				}
			}
		})
	}
}

// TestNodeServiceOfTheNode has another program translate a service's address to one of the node's
// own, as kube-proxy does for the API server on a control-plane node. A pod of the mesh reaches the
// service like any other pod.
func TestNodeServiceOfTheNode(t *testing.T) {
	t.Parallel()
	for name, backend := range hosts(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newCapturingNode(t, backend, ambient.WayVeth)
			for family, program := range translators(name) {
				service := netip.AddrPortFrom(n.remote.Addresses[family], 9090)
				endpoint := netip.AddrPortFrom(n.meshed.Addresses[family].Prev(), 8080)
				rule := fmt.Sprintf("-t nat -A PREROUTING -d %s -p tcp --dport 9090 -j DNAT --to %s", service.Addr(), endpoint)
				sandboxtest.Run(t, n.node.Host.Netns.File(), "", append([]string{program}, strings.Fields(rule)...)...)
				for _, pod := range []*nodes.Place{n.other, n.meshed} {
					visit, took, err := n.visit(pod, "tcp", service)
					if err != nil || visit.Server != endpoint || visit.Client.Addr() != pod.Addresses[family] {
						t.Errorf("%s to %s: %v, %v, and the proxy took %v", pod.Name, service, visit, err, took)
					}
				}
			}
		})
	}
}

// TestNodeCapturesServices has another program in iptables translate the address of a service to a
// meshed pod. nf_tables captures the connection after that.
func TestNodeCapturesServices(t *testing.T) {
	t.Parallel()
	n := newCapturingNode(t, hosts(t)["nftables"], ambient.WayVeth)
	for family, program := range []string{"iptables-nft", "ip6tables-nft"} {
		service, pod := netip.AddrPortFrom(n.remote.Addresses[family], 9090), netip.AddrPortFrom(n.meshed.Addresses[family], 8080)
		rule := fmt.Sprintf("-t nat -A PREROUTING -d %s -p tcp --dport 9090 -j DNAT --to %s", service.Addr(), pod)
		sandboxtest.Run(t, n.node.Host.Netns.File(), "", append([]string{program}, strings.Fields(rule)...)...)
		visit, took, err := n.visit(n.other, "tcp", service)
		if err != nil || visit.Server != pod || visit.Client.Addr() != n.other.Addresses[family] {
			t.Errorf("to %s: %v, %v", service, visit, err)
		}
		if len(took) != 1 || took[0].Port != 15006 || took[0].To != pod {
			t.Errorf("to %s: the proxy took %v, want one for %s", service, took, pod)
		}
	}
}
