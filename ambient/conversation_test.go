// SPDX-License-Identifier: Apache-2.0

package ambient

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// conversation is a connection that passes the namespaces of the node and of the proxy, each of
// which has a flow of its own for it.
type conversation struct {
	t     *testing.T
	world trace.World
	flows trace.Flows
	// journey is the way of the last packet.
	journey trace.Journey
}

func converse(t *testing.T, world trace.World) *conversation {
	t.Helper()
	return &conversation{t: t, world: world}
}

// send follows a packet to where it ends: the namespace with the listener, the socket or the link.
func (c *conversation) send(packet trace.Packet) (string, trace.Outcome) {
	c.t.Helper()
	journey, err := trace.Follow(c.world, packet, c.flows)
	if err != nil {
		c.t.Fatalf("%s: %v", packet, err)
	}
	c.flows, c.journey = journey.Flows, journey
	end := journey.End()
	return end.Namespace + " " + ending(end), end
}

func ending(o trace.Outcome) string {
	switch {
	case o.Verdict == trace.Sent:
		return string(o.Link)
	case o.Socket != nil:
		return "opener"
	case o.Verdict == trace.Delivered:
		return o.Listener.Name
	default:
		return o.Verdict.String()
	}
}

// line sends the first packet of a connection, whose text names the namespace.
func (c *conversation) line(namespace, line string) (string, trace.Outcome) {
	c.t.Helper()
	packet, err := trace.ParsePacket(line)
	if err != nil {
		c.t.Fatal(err)
	}
	switch from := packet.From.(type) {
	case trace.Socket:
		from.Namespace = namespace
		packet.From = from
	case trace.Arrival:
		from.Namespace = namespace
		packet.From = from
	}
	return c.send(packet)
}

// answer sends the answer to a packet back from where it ended.
func (c *conversation) answer(to trace.Outcome) (string, trace.Outcome) {
	c.t.Helper()
	if to.Verdict == trace.Sent {
		return c.send(to.Answer(trace.Arrival{Namespace: to.Namespace, Link: to.Link}))
	}
	return c.send(to.Answer(trace.Socket{Namespace: to.Namespace}))
}

// mesh is a node with the meshed pods A and B, the pod C, and the proxy. Pod i of a family has the
// address ending in 4i+2, on a link of its own.
type mesh struct {
	proxy   NodeProxy
	numbers NodeNumbers
	facts   interception.Facts
	members bool
	also    []*interception.Plan // of other programs, on the node
}

func meshed() mesh {
	return mesh{proxy: nodeProxy(), numbers: IstioNodeNumbers(), facts: dual(), members: true}
}

func dual() interception.Facts { return interception.Facts{IPv6: true, LoopbackIPv6: true} }

func nodeProxy() NodeProxy {
	return NodeProxy{
		Addresses: []netip.Addr{netip.MustParseAddr("10.244.0.14"), netip.MustParseAddr("fd00:10:244::e")},
		Namespace: "proxy", Node: netip.MustParseAddr("192.0.2.1"), DNS: true,
	}
}

// world returns the node and, if there is a proxy, its namespace.
func (m mesh) world(t *testing.T) trace.World {
	t.Helper()
	plan, err := NodePlan(m.proxy, m.numbers, m.facts, "test-ambient")
	if err != nil {
		t.Fatal(err)
	}
	node := trace.Namespace{
		Name: "node", Forwards: true, Plans: append(m.also, plan),
		Links: []trace.Link{trace.Loopback(), {Name: "eth0", Addresses: prefixes("192.0.2.1/24", "2001:db8::1/64")}},
		Listeners: []trace.Listener{
			{Name: "kubelet", Protocol: interception.ProtocolTCP, Port: 10250},
		},
	}
	for i, name := range []interception.Interface{"vetha", "vethb", "vethc", "vethz"} {
		addresses := prefixes(fmt.Sprintf("10.244.0.%d/30", 4*i+1), fmt.Sprintf("fd00:10:244::%x/126", 4*i+1))
		node.Links = append(node.Links, trace.Link{Name: name, Addresses: addresses})
	}
	for _, family := range families(m.facts) {
		members := map[interception.Family][]netip.Prefix{
			interception.IPv4: prefixes("10.244.0.2/32", "10.244.0.6/32"), interception.IPv6: prefixes("fd00:10:244::2/128", "fd00:10:244::6/128"),
		}[family]
		if !m.members {
			members = nil
		}
		node.LiveSets = append(node.LiveSets, trace.LiveSet{Owner: plan.Owner, Name: MeshedSet(family), Members: interception.Prefixes(members...)})
	}
	if m.proxy.IsZero() {
		return trace.World{Namespaces: []trace.Namespace{node}}
	}
	return trace.World{
		Namespaces: []trace.Namespace{node, m.proxyNamespace(t)},
		Wires:      []trace.Wire{{Ends: []trace.WireEnd{{Namespace: "node", Link: "vethz"}, {Namespace: "proxy", Link: "eth0"}}}},
	}
}

func (m mesh) proxyNamespace(t *testing.T) trace.Namespace {
	t.Helper()
	plan, err := ProxyPlan(m.proxy, m.numbers, m.facts, "test-ambient")
	if err != nil {
		t.Fatal(err)
	}
	proxy := trace.Namespace{
		Name: "proxy", Plans: []*interception.Plan{plan},
		Links: []trace.Link{trace.Loopback(), {Name: "eth0", Addresses: prefixes("10.244.0.14/30", "fd00:10:244::e/126")}},
		Listeners: []trace.Listener{
			{Name: "dns", Proxy: true, Protocol: interception.ProtocolUDP, Port: 15053},
		},
	}
	for name, port := range map[string]interception.Port{"outbound": 15001, "inbound": 15006, "tunnel": 15008} {
		proxy.Listeners = append(proxy.Listeners, trace.Listener{
			Name: name, Proxy: true, Transparent: true, Protocol: interception.ProtocolTCP, Port: port,
		})
	}
	return proxy
}
