// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// place returns a namespace with lo, and with links that "eth0 10.244.0.2/30 fd00::2/126" each
// describe.
func place(name string, links ...string) trace.Namespace {
	n := trace.Namespace{Name: name, Links: []trace.Link{trace.Loopback()}}
	for _, words := range links {
		fields := strings.Fields(words)
		link := trace.Link{Name: interception.Interface(fields[0])}
		for _, address := range fields[1:] {
			link.Addresses = append(link.Addresses, netip.MustParsePrefix(address))
		}
		n.Links = append(n.Links, link)
	}
	return n
}

// wire joins links that "client eth0" names.
func wire(ends ...string) trace.Wire {
	var w trace.Wire
	for _, end := range ends {
		namespace, link, _ := strings.Cut(end, " ")
		w.Ends = append(w.Ends, trace.WireEnd{Namespace: namespace, Link: interception.Interface(link)})
	}
	return w
}

// Programs print a Journey beside the error that came with it.
func TestZeroJourney(t *testing.T) {
	t.Parallel()
	var none trace.Journey
	if got, want := none.String(), (trace.Outcome{}).String(); got != want {
		t.Errorf("String = %q, want %q", got, want)
	}
	if none.End().Verdict != 0 || none.Report() == "" {
		t.Errorf("End = %v, Report = %q", none.End(), none.Report())
	}
}

// nodeWorld is a client and a server, each at a wire to a node that forwards.
func nodeWorld() trace.World {
	client := place("client", "eth0 10.244.0.2/30 fd00:10:244::2/126")
	server := place("server", "eth0 10.244.0.6/30 fd00:10:244::6/126")
	server.Listeners = []trace.Listener{
		{Name: "application", Protocol: interception.ProtocolTCP, Port: 8080}, {Name: "application", Protocol: interception.ProtocolUDP, Port: 8080},
	}
	node := place("node", "eth0 192.0.2.1/24 2001:db8::1/64", "vetha 10.244.0.1/30 fd00:10:244::1/126", "vethb 10.244.0.5/30 fd00:10:244::5/126")
	node.Forwards = true
	return trace.World{
		Namespaces: []trace.Namespace{client, node, server},
		Wires:      []trace.Wire{wire("client eth0", "node vetha"), wire("server eth0", "node vethb")},
	}
}

// sixth writes an IPv4 packet of [nodeWorld] with the addresses that its ends have in IPv6.
func sixth(line string) string {
	return strings.NewReplacer("10.244.0.2:", "[fd00:10:244::2]:", "10.244.0.6:", "[fd00:10:244::6]:", "198.51.100.7:", "[2001:db8:7::7]:",
		"10.244.0.5:", "[fd00:10:244::5]:", "192.0.2.1:", "[2001:db8::1]:").Replace(line)
}

func parsed(t *testing.T, line string) trace.Packet {
	t.Helper()
	packet, err := trace.ParsePacket(line)
	if err != nil {
		t.Fatal(err)
	}
	return packet
}

// followed follows a packet, or fails the test.
func followed(t *testing.T, world trace.World, packet trace.Packet, flows trace.Flows) trace.Journey {
	t.Helper()
	journey, err := trace.Follow(world, packet, flows)
	if err != nil {
		t.Fatal(err)
	}
	return journey
}

// TestFollow has connections from the client, their answers, and further packets.
func TestFollow(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][3]string{
		"tcp uid 1000 gid 1000 > 10.244.0.6:8080": {
			"client, node, server: delivered to application at 10.244.0.6:8080; no rule decided",
			"server, node, client: delivered to uid 1000 gid 1000 at 10.244.0.2:32768, from 10.244.0.6:8080; no rule decided",
			"client, node, server: delivered to application at 10.244.0.6:8080; no rule decided",
		},
		"udp uid 1000 gid 1000 > 198.51.100.7:53": {
			"client, node: sent by eth0 to 198.51.100.7:53; no rule decided",
			"node, client: delivered to uid 1000 gid 1000 at 10.244.0.2:32768, from 198.51.100.7:53; no rule decided",
			"client, node: sent by eth0 to 198.51.100.7:53; no rule decided",
		},
		"icmp uid 1000 gid 1000 > 10.244.0.6:0": {
			"client, node, server: delivered to kernel at 10.244.0.6:0; no rule decided",
			"server, node, client: delivered to uid 1000 gid 1000 at 10.244.0.2:32768, from 10.244.0.6:0; no rule decided",
			"client, node, server: delivered to kernel at 10.244.0.6:0; no rule decided",
		},
		"tcp uid 1000 gid 1000 > 10.244.0.6:9": {"client, node, server: refused: nothing listens at 10.244.0.6:9; no rule decided"},
	} {
		for _, in := range []func(string) string{func(s string) string { return s }, sixth} {
			world := nodeWorld()
			first := followed(t, world, parsed(t, in(line)), nil)
			journeys := []trace.Journey{first}
			if want[1] != "" {
				end := first.End()
				origin := trace.Origin(trace.Socket{Namespace: end.Namespace})
				if end.Verdict == trace.Sent {
					origin = trace.Arrival{Namespace: end.Namespace, Link: end.Link}
				}
				answer := followed(t, world, end.Answer(origin), first.Flows)
				next := first.Outcomes[0].Next()
				next.Flow = nil // the journey's flows have it
				journeys = append(journeys, answer, followed(t, world, next, answer.Flows))
			}
			for i, j := range journeys {
				if got := j.String(); got != in(want[i]) {
					t.Errorf("%s, packet %d: got %s, want %s\n%s", line, i, got, in(want[i]), j.Report())
				}
			}
		}
	}
}

// TestFollowOne has one namespace without wires: the journey is what Trace says.
func TestFollowOne(t *testing.T) {
	t.Parallel()
	for _, packet := range []trace.Packet{connect(application, "192.0.2.1:80"), connect(application, "127.0.0.1:8080"), arriving("10.244.0.9:40000", "10.244.0.2:80")} {
		one, journey := traced(t, pod(), packet), followed(t, pod(), packet, nil)
		if len(journey.Outcomes) != 1 || journey.Report() != one.Report() || journey.String() != one.String() {
			t.Errorf("got %s, want %s", journey.Report(), one.Report())
		}
		known := packet
		known.Flow = one.Flow
		if again, want := followed(t, pod(), packet, journey.Flows), traced(t, pod(), known); again.Report() != want.Report() {
			t.Errorf("again: got %s, want %s", again.Report(), want.Report())
		}
	}
}

// TestFlowOfEachNamespace has the node translate the client's source. Each namespace then knows the
// connection by other addresses, and the answer finds back.
func TestFlowOfEachNamespace(t *testing.T) {
	t.Parallel()
	world := nodeWorld()
	world.Namespaces[1].Plans = []*interception.Plan{build(t, func(b *interception.Builder) {
		c := b.NAT("sources")
		c.Entry(interception.Postrouting, interception.Match{Family: interception.IPv4}, "why")
		c.Do("translate", interception.Match{Family: interception.IPv4, Out: interception.Is(interception.Interfaces("vethb"))},
			interception.SNATTo{Addr: netip.MustParseAddr("10.244.0.5")}, "the server sees the node")
	})}
	first := followed(t, world, parsed(t, "tcp uid 1000 gid 1000 > 10.244.0.6:8080"), nil)
	for namespace, want := range map[string]string{"client": "10.244.0.2:32768", "node": "10.244.0.2:32768", "server": "10.244.0.5:32768"} {
		flows := first.Flows[namespace]
		if len(flows) != 1 || flows[0].Original.Src.String() != want {
			t.Errorf("%s knows %+v, want a flow from %s", namespace, flows, want)
		}
	}
	answer := followed(t, world, first.End().Answer(trace.Socket{Namespace: "server"}), first.Flows)
	if end := answer.End(); end.Namespace != "client" || end.Socket == nil {
		t.Errorf("the answer: %s", answer.Report())
	}
	if lost := followed(t, world, first.End().Answer(trace.Socket{Namespace: "server"}), nil); lost.End().Namespace != "node" {
		t.Errorf("the answer without the flows: %s", lost.Report())
	}
	if !strings.Contains(first.Report(), "\nnode: tcp in vetha 10.244.0.2:32768 > 10.244.0.6:8080\n  node postrouting in vetha out vethb\n") {
		t.Errorf("got the report\n%s", first.Report())
	}
}

// TestFollowBridge has three pods at one bridge of their node: packets between pods do not pass the
// node's rules.
func TestFollowBridge(t *testing.T) {
	t.Parallel()
	world := trace.World{Namespaces: []trace.Namespace{place("node", "eth0 192.0.2.1/24 2001:db8::1/64", "cni0 10.244.0.1/24 fd00:10:244::1/64")}}
	world.Namespaces[0].Forwards = true
	bridge := wire("node cni0")
	for i := 2; i <= 4; i++ {
		pod := place(fmt.Sprintf("pod-%d", i), fmt.Sprintf("eth0 10.244.0.%d/24 fd00:10:244::%d/64", i, i))
		for _, by := range []string{"0.0.0.0/0 10.244.0.1", "::/0 fd00:10:244::1"} {
			to, gateway, _ := strings.Cut(by, " ")
			pod.Routes = append(pod.Routes, interception.Route{
				Destination: netip.MustParsePrefix(to), Device: "eth0", Gateway: netip.MustParseAddr(gateway),
			})
		}
		pod.Listeners = []trace.Listener{{Name: "application", Protocol: interception.ProtocolTCP, Port: 8080}}
		world.Namespaces = append(world.Namespaces, pod)
		bridge.Ends = append(bridge.Ends, trace.WireEnd{Namespace: pod.Name, Link: "eth0"})
	}
	world.Wires = []trace.Wire{bridge}
	for to, want := range map[string]string{
		"10.244.0.3:8080":       "pod-2, pod-3: delivered to application",
		"[fd00:10:244::4]:8080": "pod-2, pod-4: delivered to application",
		"198.51.100.7:443":      "pod-2, node: sent by eth0",
		"[2001:db8:7::7]:443":   "pod-2, node: sent by eth0",
		"10.244.0.9:8080":       "unroutable: no neighbour has the address of the next hop",
		"[fd00:10:244::9]:8080": "unroutable: no neighbour has the address of the next hop",
	} {
		packet := connect(application, to)
		packet.From = trace.Socket{Namespace: "pod-2", UID: application}
		if journey := followed(t, world, packet, nil); !strings.HasPrefix(journey.String(), want) {
			t.Errorf("to %s: got %s, want %s", to, journey, want)
		}
	}
}

// TestFollowEnds has packets that no namespace takes.
func TestFollowEnds(t *testing.T) {
	t.Parallel()
	looping := nodeWorld()
	looping.Namespaces[0].Forwards = true
	looping.Namespaces[1].Routes = []interception.Route{{Destination: netip.MustParsePrefix("198.51.100.0/24"), Device: "vetha", Gateway: netip.MustParseAddr("10.244.0.2")}}
	astray := nodeWorld()
	astray.Namespaces[1].Routes = []interception.Route{{Destination: netip.MustParsePrefix("198.51.100.0/24"), Device: "vethb", Gateway: netip.MustParseAddr("10.244.0.7")}}
	still := nodeWorld()
	still.Namespaces[1].Forwards = false
	for name, c := range map[string]struct {
		world trace.World
		line  string
		cause trace.Cause
		count int
	}{
		"a loop":                       {looping, "udp in eth0 203.0.113.9:40000 > 198.51.100.7:53", trace.Expired, 64},
		"a gateway that is not there":  {astray, "udp uid 0 gid 0 > 198.51.100.7:53", trace.NoNeighbour, 2},
		"a node that does not forward": {still, "udp uid 0 gid 0 > 198.51.100.7:53", trace.NotLocal, 2},
	} {
		packet := parsed(t, c.line)
		if arrival, arrives := packet.From.(trace.Arrival); arrives {
			arrival.Namespace = "node"
			packet.From = arrival
		}
		journey := followed(t, c.world, packet, nil)
		if end := journey.End(); end.Verdict != trace.Unroutable || end.Cause != c.cause || len(journey.Outcomes) != c.count {
			t.Errorf("%s: %d outcomes, %s", name, len(journey.Outcomes), journey.End())
		}
	}
}

// TestForwarding has the settings of the families, by the world and by a plan.
func TestForwarding(t *testing.T) {
	t.Parallel()
	plan := build(t, func(b *interception.Builder) {
		b.Sysctl(interception.Sysctl{ID: "forward", Key: "ipv4/ip_forward", Value: 1, Why: "why"})
	})
	for name, c := range map[string]struct {
		forwards  bool
		sysctls   map[string]int
		plans     []*interception.Plan
		want4, to bool
	}{
		"both":         {true, nil, nil, true, true},
		"none":         {false, nil, nil, false, false},
		"IPv4":         {false, map[string]int{"ipv4/ip_forward": 1}, nil, true, false},
		"IPv6":         {false, map[string]int{"ipv6/conf/all/forwarding": 1}, nil, false, true},
		"but IPv6":     {true, map[string]int{"ipv6/conf/all/forwarding": 0}, nil, true, false},
		"IPv4, a plan": {false, map[string]int{"ipv4/ip_forward": 0}, []*interception.Plan{plan}, true, false},
	} {
		for line, want := range map[string]bool{"tcp uid 0 gid 0 > 10.244.0.6:8080": c.want4, sixth("tcp uid 0 gid 0 > 10.244.0.6:8080"): c.to} {
			world := nodeWorld()
			world.Namespaces[1].Forwards, world.Namespaces[1].Sysctls, world.Namespaces[1].Plans = c.forwards, c.sysctls, c.plans
			if journey := followed(t, world, parsed(t, line), nil); (journey.End().Verdict == trace.Delivered) != want {
				t.Errorf("%s: %s", name, journey)
			}
		}
	}
}

// TestWiresOfWorlds has worlds whose wires could not exist.
func TestWiresOfWorlds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*trace.World)
		want   string
	}{
		"one end":      {func(w *trace.World) { w.Wires[0].Ends = w.Wires[0].Ends[:1] }, "wire 0 has 1 ends"},
		"no namespace": {func(w *trace.World) { w.Wires[1].Ends[0].Namespace = "moon" }, "the world has no such namespace"},
		"no link":      {func(w *trace.World) { w.Wires[1].Ends[0].Link = "eth9" }, "the namespace has no such link"},
		"lo":           {func(w *trace.World) { w.Wires[1].Ends[0].Link = "lo" }, "lo and tunnels are at no wire"},
		"twice":        {func(w *trace.World) { w.Wires[1].Ends[0] = w.Wires[0].Ends[0] }, "is at another wire, too"},
		"a setting":    {func(w *trace.World) { w.Namespaces[0].Sysctls = map[string]int{"ipv4/conf/eth0/arp_ignore": 1} }, "no packet's way depends on it"},
		"another":      {func(w *trace.World) { w.Namespaces[0].Sysctls = map[string]int{"ipv4/ip_forwards": 1} }, "no packet's way depends on it"},
		"a route":      {func(w *trace.World) { w.Namespaces[0].Routes = []interception.Route{{Device: "eth0"}} }, "route to"},
		"a route by": {func(w *trace.World) {
			w.Namespaces[0].Routes = []interception.Route{{Destination: netip.MustParsePrefix("0.0.0.0/0"), Device: "eth9"}}
		}, "the namespace has no link eth9"},
		"two tunnels": {func(w *trace.World) {
			w.Namespaces[0].Links[1].VXLAN, w.Namespaces[0].Links[1].Geneve = vxlan("10.244.0.1"), geneve("10.244.0.1")
		}, "it is one tunnel"},
		"a tunnel to":   {func(w *trace.World) { w.Namespaces[0].Links[1].VXLAN = &interception.VXLAN{VNI: 1} }, "a tunnel needs the far end's address and port"},
		"a wired vxlan": {func(w *trace.World) { w.Namespaces[0].Links[1].VXLAN = vxlan("10.244.0.1") }, "lo and tunnels are at no wire"},
	} {
		world := nodeWorld()
		c.change(&world)
		if err := world.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if _, err := trace.Follow(world, parsed(t, "udp uid 0 gid 0 > 198.51.100.7:53"), nil); err == nil {
			t.Errorf("%s: Follow accepts it", name)
		}
	}
}
