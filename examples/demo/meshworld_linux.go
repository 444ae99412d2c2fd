// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/examples/internal/ambientconf"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/netfacts"
	"github.com/meshcni/meshcni/interception/trace"
)

// wiring describes the node for walks.
func (m *mesh) wiring() wiring {
	w := wiring{expect: m.expect, numbers: ambient.IstioNumbers(), pods: map[netip.Addr]string{}}
	for _, p := range m.pods {
		for _, address := range p.addresses {
			w.pods[address.Addr()] = p.name
			if p.name != audit {
				w.tunnelled = append(w.tunnelled, address.Addr())
			}
		}
	}
	for _, side := range m.scene.sides {
		w.resolvers = append(w.resolvers, netip.AddrPortFrom(side.world, uint16(dnsPort)))
	}
	return w
}

// world returns the node and the pods for package trace. The pods that are enrolled have what
// planned returns for them; the node's sets have the members that the kernel has.
func (m *mesh) world(ctx context.Context, planned func(*interception.Plan) *interception.Plan) (trace.World, error) {
	node, err := m.nodePlace(ctx)
	if err != nil {
		return trace.World{}, err
	}
	world := trace.World{Namespaces: []trace.Namespace{node}}
	for _, p := range m.pods {
		place := trace.Namespace{
			Name: p.name, Links: []trace.Link{trace.Loopback(), {Name: podInterface, Addresses: p.addresses}}, Listeners: p.listeners(),
		}
		if p.plan != nil {
			place.Plans = []*interception.Plan{planned(p.plan)}
			place.Listeners = append(place.Listeners, proxyListeners(ambient.IstioNumbers(), m.ipv6)...)
		}
		world.Namespaces = append(world.Namespaces, place)
	}
	return world, nil
}

// nodePlace returns the node's own namespace, which has the addresses of the world, too.
func (m *mesh) nodePlace(ctx context.Context) (trace.Namespace, error) {
	var plan *interception.Plan
	err := m.in("", func(netns *interception.Netns) error {
		facts, err := netfacts.Read(netns)
		if err == nil {
			plan, err = ambient.HostPlan(ambient.IstioNumbers(), facts, ambientconf.Owner)
		}
		return err
	})
	if err != nil {
		return trace.Namespace{}, err
	}
	state, err := m.observe(ctx, "")
	if err != nil {
		return trace.Namespace{}, err
	}
	place := trace.Namespace{Name: nodeName, Plans: []*interception.Plan{plan}}
	for set := range interception.ObjectsOf[interception.Set](plan) {
		var members []netip.Prefix
		for address := range state.Owners[set.Name] {
			members = append(members, netip.PrefixFrom(address, address.BitLen()))
		}
		place.LiveSets = append(place.LiveSets, trace.LiveSet{Owner: plan.Owner, Name: set.Name, Members: interception.Prefixes(members...)})
	}
	var beyond []netip.Prefix
	bridge := trace.Link{Name: bridgeName}
	for _, side := range m.scene.sides {
		beyond = append(beyond, netip.PrefixFrom(side.world, side.world.BitLen()))
		i := slices.IndexFunc(m.pods[0].addresses, func(p netip.Prefix) bool { return p.Addr().Is4() == side.world.Is4() })
		network := m.pods[0].addresses[i].Masked() // whose first address is the bridge's
		bridge.Addresses = append(bridge.Addresses, netip.PrefixFrom(network.Addr().Next(), network.Bits()))
	}
	place.Links = []trace.Link{trace.Loopback(beyond...), bridge}
	for _, port := range []interception.Port{httpPort, dnsPort} {
		for _, protocol := range []interception.Protocol{interception.ProtocolTCP, interception.ProtocolUDP} {
			place.Listeners = append(place.Listeners, listenerOf(world, protocol, port))
		}
	}
	return place, nil
}

// listeners returns the sockets of the pod's application.
func (p *ambientPod) listeners() []trace.Listener {
	return []trace.Listener{listenerOf(p.name, interception.ProtocolTCP, standardPort)}
}
