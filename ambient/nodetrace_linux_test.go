// SPDX-License-Identifier: Apache-2.0

package ambient_test

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest"
	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// world describes all places and plans to package trace.
func (n *capturingNode) world(proxy ambient.NodeProxy) trace.World {
	n.t.Helper()
	var world trace.World
	n.describe(&world, proxy)
	if n.beyond != nil {
		n.beyond.describe(&world, n.beyond.current)
		return world
	}
	remoteHost, _ := n.remote.Peer("eth0")
	addPlace(&world, remoteHost)
	addPlace(&world, n.remote)
	return world
}

// describe adds the node with both plans.
func (n *capturingNode) describe(world *trace.World, proxy ambient.NodeProxy) {
	n.t.Helper()
	plan, err := ambient.NodePlan(proxy, ambient.IstioNodeNumbers(), bothFamilies(), "test-ambient")
	if err != nil {
		n.t.Fatal(err)
	}
	if !proxy.IsZero() && proxy.Way == ambient.WayVeth {
		plan.Objects = renamed(plan.Objects, n.proxy.Name)
	}
	for _, place := range []*nodes.Place{n.node.Host, n.proxy, n.meshed, n.peer, n.other} {
		space := addPlace(world, place)
		switch place {
		case n.node.Host:
			space.Plans = []*interception.Plan{plan}
			space.LiveSets = n.members(plan.Owner)
		case n.proxy:
			n.describeProxy(space, proxy)
		}
	}
}

// addPlace adds a place with its application, and those of its wires that are not there yet.
func addPlace(world *trace.World, place *nodes.Place) *trace.Namespace {
	space := place.Trace()
	for _, link := range space.Links {
		peer, at := place.Peer(link.Name)
		end := trace.WireEnd{Namespace: place.Name, Link: link.Name}
		if peer != nil && !slices.ContainsFunc(world.Wires, func(w trace.Wire) bool { return w.Ends[1] == end }) {
			world.Wires = append(world.Wires, trace.Wire{Ends: []trace.WireEnd{end, {Namespace: peer.Name, Link: at}}})
		}
	}
	for _, protocol := range []interception.Protocol{interception.ProtocolTCP, interception.ProtocolUDP} {
		space.Listeners = append(space.Listeners, trace.Listener{Name: "application", Protocol: protocol, Port: 8080})
	}
	world.Namespaces = append(world.Namespaces, space)
	return &world.Namespaces[len(world.Namespaces)-1]
}

// renamed replaces the label of the proxy's namespace by the name that it has in the world.
func renamed(objects []interception.Object, name string) []interception.Object {
	objects = slices.Clone(objects)
	for i, object := range objects {
		if link, is := object.(interception.Link); is && link.Veth != nil {
			link.Veth = &interception.Veth{Peer: link.Veth.Peer, Namespace: name}
			objects[i] = link
		}
	}
	return objects
}

// describeProxy adds the plan and the listeners of the proxy's namespace.
func (n *capturingNode) describeProxy(space *trace.Namespace, proxy ambient.NodeProxy) {
	n.t.Helper()
	if !proxy.IsZero() {
		plan, err := ambient.ProxyPlan(proxy, ambient.IstioNodeNumbers(), bothFamilies(), "test-ambient")
		if err != nil {
			n.t.Fatal(err)
		}
		space.Plans = []*interception.Plan{plan}
	}
	for _, port := range []interception.Port{15001, 15006, 15008} {
		space.Listeners = append(space.Listeners, trace.Listener{
			Name: fmt.Sprint(port), Proxy: true, Transparent: true, Protocol: interception.ProtocolTCP, Port: port,
		})
	}
	space.Listeners = append(space.Listeners, trace.Listener{Name: "resolver", Protocol: interception.ProtocolUDP, Port: 15053})
}

// members are the live sets of the node's plan.
func (n *capturingNode) members(owner interception.Owner) []trace.LiveSet {
	var sets []trace.LiveSet
	for _, of := range []interception.Family{interception.IPv4, interception.IPv6} {
		var all []netip.Prefix
		for _, pod := range []*nodes.Place{n.meshed, n.peer} {
			for _, address := range pod.Addresses {
				if interception.FamilyOf(address) == of {
					all = append(all, netip.PrefixFrom(address, address.BitLen()))
				}
			}
		}
		sets = append(sets, trace.LiveSet{Owner: owner, Name: ambient.MeshedSet(of), Members: interception.Prefixes(all...)})
	}
	return sets
}

// expected returns by package trace what [capturingNode.visit] should find, without the ports of
// clients: the relay continues each connection that the proxy takes.
func (n *capturingNode) expected(
	proxy ambient.NodeProxy, from *nodes.Place, network string, to netip.AddrPort,
) (visit nodes.Visit, took []ambienttest.Taken, report string) {
	n.t.Helper()
	protocol := map[string]interception.Protocol{"tcp": interception.ProtocolTCP, "udp": interception.ProtocolUDP}[network]
	world := n.world(proxy)
	packet := trace.Packet{From: trace.Socket{Namespace: from.Name}, Protocol: protocol, Dst: to}
	for range 3 { // the relays of two nodes, and the application
		there, err := trace.Follow(world, packet, nil)
		if err != nil {
			n.t.Fatal(err)
		}
		report += there.Report()
		end := there.End()
		if end.Verdict != trace.Delivered {
			return nodes.Visit{}, took, report
		}
		back, err := trace.Follow(world, end.Answer(trace.Socket{Namespace: end.Namespace}), there.Flows)
		if err != nil {
			n.t.Fatal(err)
		}
		report += back.Report()
		if back.End().Socket == nil {
			return nodes.Visit{}, took, report
		}
		client := netip.AddrPortFrom(end.Header.Src.Addr(), 0)
		if !end.Listener.Proxy {
			return nodes.Visit{Client: client, Server: end.Header.Dst}, took, report
		}
		took = append(took, ambienttest.Taken{Port: end.Listener.Port, From: client, To: end.Header.Dst})
		packet = trace.Packet{
			From: trace.Socket{Namespace: end.Namespace, Transparent: true}, Protocol: protocol, Src: client, Dst: end.Header.Dst,
		}
		if end.Header.Dst.Port() == uint16(end.Listener.Port) {
			packet.Dst = netip.AddrPortFrom(end.Header.Dst.Addr(), 8080)
		}
	}
	return nodes.Visit{}, took, report
}

// wantTraced fails the test unless package trace finds the same as the visit.
func (n *capturingNode) wantTraced(from *nodes.Place, network string, to netip.AddrPort, visit nodes.Visit, took []ambienttest.Taken) {
	n.t.Helper()
	proxy := n.current
	wantVisit, wantTook, report := n.expected(proxy, from, network, to)
	visit.Client = withoutPort(visit.Client)
	took = slices.Clone(took)
	for i := range took {
		took[i].From = withoutPort(took[i].From)
	}
	if visit != wantVisit || !slices.Equal(took, wantTook) {
		n.t.Errorf("%s to %s over %s: got %v, and the proxy took %v; want by the trace %v, %v\n%s",
			from.Name, to, network, visit, took, wantVisit, wantTook, report)
	}
}

func withoutPort(a netip.AddrPort) netip.AddrPort {
	if !a.IsValid() {
		return a
	}
	return netip.AddrPortFrom(a.Addr(), 0)
}
