// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest"
	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/netfacts"
	"github.com/meshcni/meshcni/interception/podnetns"
	"github.com/meshcni/meshcni/interception/trace"
)

// meshNode is a node made of namespaces with an agent, a proxy and pods.
type meshNode struct {
	*node
	*nodes.Node
	agent *Agent
	proxy ambienttest.Instance
	uids  map[*nodes.Place]string // of the enrolled pods
	seen  []*ambienttest.Witness  // in these pods
}

// mesh is two such nodes.
type mesh struct {
	t       *testing.T
	nodes   [2]*meshNode
	places  map[string]*nodes.Place // by their names in cases
	silent  bool                    // the proxies have ended
	command string                  // the proxy that takes the stand-in's place, if any
}

// population is which pods a mesh has: their annotations by their names. The pods of the names in
// outside are not enrolled. The suffix of a name is the number of the node.
var (
	population = map[string]map[string]string{
		"client-1": nil, "server-1": nil, "server-2": nil,
		"ingress-1":     {"ambient.istio.io/bypass-inbound-capture": "true"},
		"no-port-out-1": {"traffic.istio.io/excludeOutboundPorts": "8080"},
		"no-net-out-1":  {"traffic.istio.io/excludeOutboundIPRanges": "10.244.2.0/24,fd00:244:0:2::/64"},
		"no-port-in-2":  {"traffic.istio.io/excludeInboundPorts": "8080"},
		"dns-1":         {"ambient.istio.io/dns-capture": "true"},
	}
	outside = []string{"plain-1", "other-1", "plain-2"}
)

// hostDataplane is a dataplane for pods and for a host, whose rules have live sets.
type hostDataplane interface {
	interception.Dataplane
	SetEditor
}

func newMesh(t *testing.T, dataplane hostDataplane, families []interception.Family, command string) *mesh {
	t.Helper()
	m := &mesh{t: t, places: map[string]*nodes.Place{}, command: command}
	for i, made := range nodes.New(t) {
		n := &meshNode{node: newNode(t), Node: made, uids: map[*nodes.Place]string{}}
		m.places[fmt.Sprintf("host-%d", i+1)] = made.Host
		n.command = command
		n.dataplane, n.options.Dataplane = dataplane, dataplane
		n.options.Host, n.options.Sets = made.Host.Netns, dataplane
		finder, err := podnetns.NewFinder(made.Roots())
		if err != nil {
			t.Fatal(err)
		}
		n.options.Finder = finder
		n.agent, _ = n.run()
		m.nodes[i] = n
	}
	for _, name := range slices.Sorted(maps.Keys(population)) {
		m.add(name, population[name], true, families)
	}
	for _, name := range outside {
		m.add(name, nil, false, families)
	}
	for _, n := range m.nodes { // their resolver is one of the pods
		n.proxy = n.startProxy(m.proxyOptions(n))
	}
	for _, n := range m.nodes {
		for _, uid := range n.uids {
			n.awaitStatus(n.agent, uid, ambient.StatusEnabled)
		}
	}
	return m
}

// served reports whether a pod of this address is enrolled.
func (m *mesh) served(address netip.Addr) bool {
	for _, n := range m.nodes {
		for place := range n.uids {
			if slices.Contains(place.Addresses, address) {
				return true
			}
		}
	}
	return false
}

// resolver returns where the proxies send queries: a pod that is not enrolled. It is zero for a
// family that the pods do not have.
func (m *mesh) resolver(family interception.Family) netip.AddrPort {
	for _, address := range m.places["plain-2"].Addresses {
		if interception.FamilyOf(address) == family {
			return netip.AddrPortFrom(address, 53)
		}
	}
	return netip.AddrPort{}
}

// add adds a pod with an application, and tells the agent of it.
func (m *mesh) add(name string, annotations map[string]string, enrolled bool, families []interception.Family) {
	m.t.Helper()
	n := m.nodes[name[len(name)-1]-'1']
	uid := fmt.Sprintf("1c6b2f1e-9d3c-4f7a-8a51-%012d", len(m.places))
	place := n.NewPod(uid, families...)
	m.places[name] = place
	for _, port := range []uint16{8080, 53} {
		stop, err := place.Serve(port)
		if err != nil {
			m.t.Fatal(err)
		}
		m.t.Cleanup(stop)
	}
	pod := ambient.Pod{Addresses: place.Addresses, Pod: interception.Pod{Namespace: "shop", Name: name, UID: uid, Annotations: annotations}}
	if enrolled {
		pod.Labels = map[string]string{"istio.io/dataplane-mode": "ambient"}
		n.uids[place] = uid
		n.seen = append(n.seen, newWitness(m.t, place.Netns))
	}
	n.feed <- told(pod)
}

// world returns both nodes for package trace: with the plans that the agents have recorded, and the
// members that the kernel has in the hosts' sets.
func (m *mesh) world() trace.World {
	m.t.Helper()
	world := trace.World{}
	for _, n := range m.nodes {
		host := n.Host.Trace()
		host.Plans, host.LiveSets = m.hostRules(n)
		world.Namespaces = append(world.Namespaces, host)
	}
	for name, place := range m.places {
		if place.Addresses == nil {
			continue
		}
		pod := place.Trace()
		for _, port := range []interception.Port{8080, 53} {
			for _, protocol := range []interception.Protocol{interception.ProtocolTCP, interception.ProtocolUDP} {
				pod.Listeners = append(pod.Listeners, trace.Listener{Name: name, Protocol: protocol, Port: port})
			}
		}
		n := m.nodes[name[len(name)-1]-'1']
		if uid, enrolled := n.uids[place]; enrolled {
			pod.Plans = []*interception.Plan{n.recorded(uid).Plan}
			if !m.silent {
				pod.Listeners = append(pod.Listeners, proxyListeners(n.options.Numbers)...)
			}
		}
		world.Namespaces = append(world.Namespaces, pod)
	}
	return world
}

func proxyListeners(n ambient.Numbers) (all []trace.Listener) {
	for _, port := range []interception.Port{n.OutboundPort, n.InboundPort, n.TunnelPort, n.DNSPort} {
		all = append(all, trace.Listener{
			Name: "proxy", Proxy: true, Protocol: interception.ProtocolTCP, Port: port, Mark: n.ProxyMark.Value,
		})
	}
	for _, loopback := range []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()} {
		all = append(all, trace.Listener{
			Name: "proxy", Proxy: true, Protocol: interception.ProtocolUDP, Address: loopback, Port: n.DNSPort, Mark: n.ProxyMark.Value,
		})
	}
	return all
}

func (m *mesh) hostRules(n *meshNode) ([]*interception.Plan, []trace.LiveSet) {
	m.t.Helper()
	facts, err := netfacts.Read(n.Host.Netns)
	if err != nil {
		m.t.Fatal(err)
	}
	plan, err := ambient.HostPlan(n.options.Numbers, facts, owner)
	if err != nil {
		m.t.Fatal(err)
	}
	state, err := n.dataplane.Observe(m.t.Context(), n.Host.Netns, owner)
	if err != nil {
		m.t.Fatal(err)
	}
	var sets []trace.LiveSet
	for set := range interception.ObjectsOf[interception.Set](plan) {
		var members []netip.Prefix
		for address := range state.Owners[set.Name] {
			members = append(members, netip.PrefixFrom(address, address.BitLen()))
		}
		sets = append(sets, trace.LiveSet{Owner: owner, Name: set.Name, Members: interception.Prefixes(members...)})
	}
	return []*interception.Plan{plan}, sets
}
