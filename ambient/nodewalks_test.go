// SPDX-License-Identifier: Apache-2.0

package ambient

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// withPods adds the namespaces of the pods to a node's world, and a machine elsewhere. The pods A
// and B are meshed, C is not.
func withPods(world trace.World) trace.World {
	end := func(namespace string, link interception.Interface) trace.WireEnd {
		return trace.WireEnd{Namespace: namespace, Link: link}
	}
	place := func(name, atNode string, addresses ...string) {
		link := trace.Link{Name: "eth0", Addresses: prefixes(addresses...)}
		world.Namespaces = append(world.Namespaces, trace.Namespace{
			Name: name, Links: []trace.Link{trace.Loopback(), link},
			Listeners: []trace.Listener{
				{Name: "application", Protocol: interception.ProtocolTCP, Port: 8080},
				{Name: "application", Protocol: interception.ProtocolUDP, Port: 8080},
				{Name: "application", Protocol: interception.ProtocolTCP, Port: 15008},
				{Name: "resolver", Protocol: interception.ProtocolUDP, Port: 53},
			},
		})
		world.Wires = append(world.Wires, trace.Wire{Ends: []trace.WireEnd{end("node", interception.Interface(atNode)), end(name, "eth0")}})
	}
	for i, name := range []string{"a", "b", "c"} {
		place(name, "veth"+name, fmt.Sprintf("10.244.0.%d/30", 4*i+2), fmt.Sprintf("fd00:10:244::%x/126", 4*i+2))
	}
	place("elsewhere", "eth0", "198.51.100.7/24", "2001:db8:7::7/64")
	elsewhere := &world.Namespaces[len(world.Namespaces)-1]
	elsewhere.Links[1].Addresses = append(elsewhere.Links[1].Addresses, prefixes("192.0.2.7/24", "2001:db8::7/64")...)
	for i := range world.Namespaces {
		if world.Namespaces[i].Name == "node" {
			for _, by := range [][2]string{{"198.51.100.0/24", "192.0.2.7"}, {"2001:db8:7::/64", "2001:db8::7"}} {
				world.Namespaces[i].Routes = append(world.Namespaces[i].Routes, interception.Route{
					Destination: prefixes(by[0])[0], Device: "eth0", Gateway: netip.MustParseAddr(by[1]),
				})
			}
		}
	}
	return world
}

// stages returns the namespaces of a journey and where it ends, with the rules that decided or
// changed anything in each. The packets of a tunnel are in brackets.
func stages(j trace.Journey) string {
	var all []string
	for _, o := range j.Outcomes {
		text := o.Namespace
		for _, step := range o.Path {
			if _, jump := step.Rule.Action.(interception.Jump); !jump {
				text += " " + strings.TrimSuffix(strings.TrimSuffix(string(step.Rule.ID), ".v6"), ".v4")
			}
		}
		switch _, outer := o.Packet.From.(trace.Tunnel); {
		case outer || o.Tunnel != "":
			text = "[" + text + "]"
		case o.Verdict != trace.Sent:
			text += " = " + ending(o)
		}
		all = append(all, text)
	}
	return strings.Join(all, " > ")
}

// The parts that the journeys of captured connections have in common.
const (
	captures  = "outbound.open outbound.mark outbound.destination inbound.outbound guard.captured captured.source > proxy outbound.capture = outbound"
	receives  = "inbound.open inbound.mark guard.captured captured.source > proxy inbound."
	returns   = "proxy send.remember send.transparent > node proxy.zone proxy.passes guard.proxy > " // what a pod has opened
	accepts   = "proxy send.remember send.transparent > node proxy.zone guard.proxy > "              // what was opened to a pod
	opens     = "proxy send.remember send.transparent > node proxy.zone proxy.opens outbound.wire proxy.passes inbound.wire guard.proxy > "
	toItsName = " > node proxy.answer guard.captured > proxy outbound.capture = opener"
)

// packetWalks are connections over pods, node, wires and proxy: the stages of their first packets
// and of the answers, where wires are no tunnels.
func packetWalks() map[string]struct{ from, packet, way, answer string } {
	return map[string]struct{ from, packet, way, answer string }{
		"outbound":  {"a", "tcp uid 0 gid 0 > 198.51.100.7:8080", "a > node " + captures, returns + "a = opener"},
		"same node": {"a", "tcp uid 0 gid 0 > 10.244.0.6:8080", "a > node " + captures, returns + "a = opener"},
		"inbound": {
			"elsewhere", "tcp uid 0 gid 0 > 10.244.0.6:8080", "elsewhere > node " + receives + "capture = inbound", accepts + "elsewhere = opener",
		},
		"across nodes, arriving": {
			"elsewhere", "tcp uid 0 gid 0 > 10.244.0.6:15008", "elsewhere > node " + receives + "tunnel = tunnel", accepts + "elsewhere = opener",
		},
		"across nodes, leaving": {
			"proxy", "tcp uid 0 gid 0 transparent 10.244.0.2:50000 > 198.51.100.7:15008", opens + "elsewhere = application", "elsewhere" + toItsName,
		},
		"the proxy for a pod, same node": {
			"proxy", "tcp uid 0 gid 0 transparent 10.244.0.2:50000 > 10.244.0.6:8080", opens + "b = application", "b" + toItsName,
		},
		"the proxy for a pod, to the node": {
			"proxy", "tcp uid 0 gid 0 transparent 10.244.0.2:50000 > 10.244.0.1:10250",
			"proxy send.remember send.transparent > node proxy.zone proxy.opens outbound.wire proxy.passes inbound.wire = kubelet",
			"node node.answer > proxy outbound.capture = opener",
		},
		"the proxy for a client": {
			"proxy", "tcp uid 0 gid 0 transparent 198.51.100.7:50000 > 10.244.0.6:8080", opens + "b = application", "b" + toItsName,
		},
		"the proxy's own": {
			"proxy", "tcp uid 0 gid 0 > 198.51.100.7:8080", "proxy send.own > node inbound.proxy > elsewhere = application", "elsewhere > node > proxy = opener",
		},
		"node to pod": {"node", "tcp uid 0 gid 0 > 10.244.0.6:8080", "node > b = application", "b > node = opener"},
		"pod to node": {
			"a", "tcp uid 0 gid 0 > 192.0.2.1:10250",
			"a > node outbound.open outbound.mark outbound.destination inbound.outbound = kubelet", "node > a = opener",
		},
		"DNS":                    {"a", "udp uid 0 gid 0 > 198.51.100.7:53", "a > node dns.udp > proxy = dns", "proxy send.own > node > a = opener"},
		"UDP":                    {"a", "udp uid 0 gid 0 > 198.51.100.7:8080", "a > node > elsewhere = application", "elsewhere > node > a = opener"},
		"UDP to a pod":           {"elsewhere", "udp uid 0 gid 0 > 10.244.0.6:8080", "elsewhere > node > b = application", "b > node > elsewhere = opener"},
		"ICMP":                   {"a", "icmp uid 0 gid 0 > 198.51.100.7:0", "a > node > elsewhere = kernel", "elsewhere > node > a = opener"},
		"ICMP to a pod":          {"elsewhere", "icmp uid 0 gid 0 > 10.244.0.6:0", "elsewhere > node > b = kernel", "b > node > elsewhere = opener"},
		"outside the mesh, from": {"c", "tcp uid 0 gid 0 > 198.51.100.7:8080", "c > node > elsewhere = application", "elsewhere > node > c = opener"},
		"outside the mesh, to":   {"elsewhere", "tcp uid 0 gid 0 > 10.244.0.10:8080", "elsewhere > node > c = application", "c > node > elsewhere = opener"},
		"outside the mesh to a meshed pod": {
			"c", "tcp uid 0 gid 0 > 10.244.0.2:8080", "c > node " + receives + "capture = inbound", accepts + "c = opener",
		},
	}
}

// TestPacketWalks follows connections over pods, node, wires and proxy, by veth pairs and tunnels,
// over both families.
func TestPacketWalks(t *testing.T) {
	t.Parallel()
	tunnels := strings.NewReplacer(" > [node] > [proxy]", "", " > [proxy send.own] > [node]", "")
	for _, way := range []Way{WayVeth, WayVXLAN} {
		m := meshed()
		m.proxy.Way = way
		world := withPods(m.world(t))
		for name, w := range packetWalks() {
			for _, line := range []string{w.packet, sixth(w.packet)} {
				c := converse(t, world)
				_, first := c.line(w.from, line)
				there := c.journey
				c.answer(first)
				for want, journey := range map[string]trace.Journey{w.way: there, w.answer: c.journey} {
					byWire := slices.ContainsFunc([]string{"guard.captured", "send.transparent", "node.answer"}, func(rule string) bool {
						return strings.Contains(want, rule)
					})
					got := stages(journey)
					if tunnels.Replace(got) != want || strings.Contains(got, "[") != (byWire && way == WayVXLAN) {
						t.Errorf("%s by %s, %s:\ngot  %s\nwant %s\n%s", name, way, line, got, want, journey.Report())
					}
				}
			}
		}
	}
}

// TestNodeAsksLittleOfOthers follows connections outside the mesh: after the first packet, none
// enters a chain of the plan, and neither does what is not TCP and not a query.
func TestNodeAsksLittleOfOthers(t *testing.T) {
	t.Parallel()
	world := withPods(meshed().world(t))
	for _, line := range []string{
		"tcp uid 0 gid 0 > 198.51.100.7:8080", "tcp uid 0 gid 0 > 10.244.0.1:10250", "udp uid 0 gid 0 > 198.51.100.7:8080", "icmp uid 0 gid 0 > 198.51.100.7:0",
	} {
		for _, line := range []string{line, sixth(line)} {
			c := converse(t, world)
			_, first := c.line("c", line)
			c.answer(first)
			asked(t, line+", the answer", c.journey)
			c.repeat("c", line)
			asked(t, line+", a further packet", c.journey)
		}
	}
}

// asked fails the test if a packet has entered a chain on the node.
func asked(t *testing.T, name string, j trace.Journey) {
	t.Helper()
	for _, o := range j.Outcomes {
		if o.Namespace == "node" && len(o.Path) > 0 {
			t.Errorf("%s meets rules:\n%s", name, j.Report())
		}
	}
}
