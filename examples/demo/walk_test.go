// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// The addresses of the pods orders, stock and audit, and of the world.
var (
	ordersAddress = netip.MustParseAddr("10.244.1.3")
	stockAddress  = netip.MustParseAddr("10.244.1.4")
	auditAddress  = netip.MustParseAddr("10.244.1.5")
	worldAddress  = netip.MustParseAddr("203.0.113.10")
)

func testWiring() wiring {
	return wiring{
		expect: trace.Trace, numbers: ambient.IstioNumbers(),
		pods:      map[netip.Addr]string{ordersAddress: orders, stockAddress: stock, auditAddress: audit},
		tunnelled: []netip.Addr{ordersAddress, stockAddress}, resolvers: []netip.AddrPort{netip.AddrPortFrom(worldAddress, 53)},
	}
}

// testWorld returns a node with three pods, two of which have what planned returns for the plan of
// a running pod in ambient mode.
func testWorld(t *testing.T, planned func(*interception.Plan) *interception.Plan) trace.World {
	t.Helper()
	pod, err := ambient.PodPlan(ambient.DefaultOverrides(true), ambient.IstioNumbers(), interception.Facts{}, "test-ambient")
	if err != nil {
		t.Fatal(err)
	}
	host, err := ambient.HostPlan(ambient.IstioNumbers(), interception.Facts{}, "test-ambient")
	if err != nil {
		t.Fatal(err)
	}
	w := trace.World{Namespaces: []trace.Namespace{{
		Name: nodeName, Plans: []*interception.Plan{host}, Links: []trace.Link{
			trace.Loopback(netip.PrefixFrom(worldAddress, 32)), {Name: bridgeName, Addresses: prefixes("10.244.1.1/24")},
		},
		LiveSets: []trace.LiveSet{{
			Owner: "test-ambient", Name: ambient.ProbeSet(interception.IPv4), Members: interception.Prefixes(prefixes("10.244.1.3/32", "10.244.1.4/32")...),
		}},
		Listeners: []trace.Listener{
			listenerOf(world, interception.ProtocolTCP, httpPort), listenerOf(world, interception.ProtocolUDP, dnsPort),
		},
	}}}
	for name, address := range map[string]netip.Addr{orders: ordersAddress, stock: stockAddress, audit: auditAddress} {
		place := trace.Namespace{
			Name: name, Links: []trace.Link{trace.Loopback(), {Name: podInterface, Addresses: []netip.Prefix{netip.PrefixFrom(address, 24)}}},
			Listeners: []trace.Listener{listenerOf(name, interception.ProtocolTCP, standardPort)},
		}
		if plan := planned(pod.Sparing()); name != audit && plan != nil {
			place.Plans = []*interception.Plan{plan}
			place.Listeners = append(place.Listeners, proxyListeners(ambient.IstioNumbers(), false)...)
		}
		w.Namespaces = append(w.Namespaces, place)
	}
	return w
}

func TestWalk(t *testing.T) {
	t.Parallel()
	s := meshScene{orders: ordersAddress, stock: stockAddress, world: worldAddress}
	enrolled, draining := testWorld(t, asPlanned), testWorld(t, (*interception.Plan).Draining)
	outside := testWorld(t, func(*interception.Plan) *interception.Plan { return nil })
	begin := func(w trace.World) *walk { return &walk{world: w} }
	var got []string
	follow := func(p probe, w *walk) {
		t.Helper()
		w.wiring = testWiring()
		e, err := w.follow(trace.Packet{From: trace.Socket{Namespace: p.from}, Protocol: p.protocol(), Dst: p.destination})
		if err != nil {
			t.Errorf("%s: %v", p, err)
		}
		if e.captured != (e.proxies != "") || w.reports.Len() == 0 {
			t.Errorf("%s: captured %t, reports %q", p, e.captured, w.reports.String())
		}
		got = append(got, p.String()+": "+e.String()+"; "+string(e.rule))
	}
	for _, p := range append([]probe{s.captured("stock")}, s.enrolled()...) {
		follow(p, begin(enrolled))
	}
	follow(s.before(), &walk{world: enrolled, age: unseen})
	for _, p := range s.withdrawn() {
		follow(p, begin(draining))
	}
	follow(s.captured("stock, later"), &walk{world: draining, earlier: enrolled, age: relayed})
	follow(s.before(), &walk{world: draining, age: unseen})
	follow(s.captured("stock, never enrolled"), begin(outside))
	follow(meshProbe(orders, "a closed port", stockAddress, 81), begin(enrolled))
	want := []string{
		"orders → stock: 15001 → 15008 → stock:8080, from 10.244.1.3; outbound.capture",
		"stock → orders: 15001 → 15008 → orders:8080, from 10.244.1.4; outbound.capture",
		"orders → the world: 15001 → world:80, from 10.244.1.3; outbound.capture",
		"orders → a resolver, by UDP: 15053 → world:53, from 10.244.1.3; dns.udp",
		"audit → stock, outside the mesh: 15006 → stock:8080, from 10.244.1.5; inbound.capture.v4",
		"node → stock, a probe: stock:8080, from 169.254.7.127; inbound.probe.v4",
		"orders → stock, opened before: stock:8080, from 10.244.1.3; inbound.spare",

		"orders → stock: stock:8080, from 10.244.1.3; inbound.capture.v4",
		"orders → the world: world:80, from 10.244.1.3; outbound.capture",
		"audit → stock: stock:8080, from 10.244.1.5; inbound.capture.v4",
		"orders → stock, later: 15001 → 15008 → stock:8080, from 10.244.1.3; outbound.capture",
		"orders → stock, opened before: stock:8080, from 10.244.1.3; inbound.spare",

		"orders → stock, never enrolled: stock:8080, from 10.244.1.3; ",
		"orders → a closed port: 15001 → 15008 → refused; outbound.capture",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("walks (-want +got):\n%s", diff)
	}
}

func TestWalkWithoutEnd(t *testing.T) {
	t.Parallel()
	enrolled := testWorld(t, asPlanned)
	packet := func(from string, to netip.AddrPort) trace.Packet {
		return trace.Packet{From: trace.Socket{Namespace: from}, Protocol: interception.ProtocolTCP, Dst: to}
	}
	for name, test := range map[string]struct {
		change func(*walk)
		packet trace.Packet
		want   string
	}{
		"nowhere": {func(*walk) {}, packet(nodeName, netip.MustParseAddrPort("10.244.1.9:80")), "no pod of the node has the address 10.244.1.9"},
		"no resolver": {
			func(w *walk) { w.resolvers = nil },
			trace.Packet{From: trace.Socket{Namespace: orders}, Protocol: interception.ProtocolUDP, Dst: netip.AddrPortFrom(worldAddress, 53)},
			"no resolver",
		},
		"for ever": {
			func(w *walk) {
				w.expect = func(trace.World, trace.Packet) (trace.Outcome, error) {
					return trace.Outcome{Verdict: trace.Sent, Header: trace.Header{Dst: netip.AddrPortFrom(stockAddress, 8080)}}, nil
				}
			},
			packet(orders, netip.AddrPortFrom(stockAddress, 8080)), "it has not ended",
		},
		"no such place": {func(*walk) {}, packet("elsewhere", netip.AddrPortFrom(stockAddress, 8080)), "elsewhere"},
	} {
		w := &walk{wiring: testWiring(), world: enrolled}
		test.change(w)
		if e, err := w.follow(test.packet); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %s, %v, want an error with %q", name, e, err, test.want)
		}
	}
}
