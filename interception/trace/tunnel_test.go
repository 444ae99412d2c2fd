// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

func vxlan(remote string) *interception.VXLAN {
	return &interception.VXLAN{VNI: 7, Remote: netip.MustParseAddr(remote), Port: 4789}
}

func geneve(remote string) *interception.Geneve {
	return &interception.Geneve{VNI: 7, Remote: netip.MustParseAddr(remote), Port: 6081}
}

// tunnelWorld is [nodeWorld] with a tunnel between client and node, for 198.51.100.0/24.
func tunnelWorld(kind string) trace.World {
	world := nodeWorld()
	for i, end := range []struct{ address, four, six string }{
		{"172.16.0.2/30", "10.244.0.1", "fd00:10:244::1"}, {"172.16.0.1/30", "10.244.0.2", "fd00:10:244::2"},
	} {
		link := trace.Link{Name: "tun0", Addresses: []netip.Prefix{netip.MustParsePrefix(end.address)}}
		switch kind {
		case "vxlan":
			link.VXLAN = vxlan(end.four)
		case "vxlan over IPv6":
			link.VXLAN = vxlan(end.six)
		case "geneve":
			link.Geneve = geneve(end.four)
		}
		world.Namespaces[i].Links = append(world.Namespaces[i].Links, link)
	}
	world.Namespaces[0].Routes = []interception.Route{
		{Destination: netip.MustParsePrefix("198.51.100.0/24"), Device: "tun0", Gateway: netip.MustParseAddr("172.16.0.1")},
	}
	return world
}

// marking returns a plan that sets a mark in a hook, of packets that match.
func marking(t *testing.T, hook interception.Hook, m interception.Match, mark interception.Mark) *interception.Plan {
	t.Helper()
	return build(t, func(b *interception.Builder) {
		c := b.Mangle("marks")
		c.Entry(hook, interception.Match{}, "why")
		c.Do("mark", m, interception.SetMark{Mark: interception.WholeMark(mark)}, "why")
	})
}

// TestTunnel has a connection through a tunnel.
func TestTunnel(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"vxlan", "vxlan over IPv6", "geneve"} {
		world := tunnelWorld(kind)
		first := followed(t, world, parsed(t, "tcp uid 1000 gid 1000 > 198.51.100.7:443"), nil)
		var ends []string
		for _, o := range first.Outcomes {
			ends = append(ends, strings.Join([]string{o.Namespace, o.Packet.Protocol.String(), o.Verdict.String(), string(o.Link), string(o.Tunnel)}, " "))
		}
		want := "client tcp sent tun0 |client udp sent eth0 |node udp delivered vetha tun0|node tcp sent eth0 "
		if got := strings.Join(ends, "|"); got != want {
			t.Errorf("%s: got %s, want %s\n%s", kind, got, want, first.Report())
		}
		answer := followed(t, world, first.End().Answer(trace.Arrival{Namespace: "node", Link: "eth0"}), first.Flows)
		if end := answer.End(); end.Socket == nil || end.Link != "tun0" {
			t.Errorf("%s: the answer: %s", kind, answer.Report())
		}
		if flows := first.Flows["node"]; len(flows) != 2 {
			t.Errorf("%s: the node knows %d flows, want the outer and the inner one", kind, len(flows))
		}
	}
}

// TestTunnelMarks follows the mark of an inner packet to the outer one, and that of the outer one
// to what is unpacked.
func TestTunnelMarks(t *testing.T) {
	t.Parallel()
	outer := interception.Match{L4: interception.UDP()}
	for name, c := range map[string]struct {
		client, node *interception.Plan
		want         string // the marks at the end of each part of the way
	}{
		"none":                         {nil, nil, "0 0 0 0"},
		"of the client":                {marking(t, interception.Output, interception.Match{L4: interception.TCP()}, 1), nil, "1 1 0 0"},
		"of the outer packet":          {marking(t, interception.Output, outer, 2), nil, "0 2 0 0"},
		"of the outer packet, on node": {nil, marking(t, interception.Prerouting, outer, 3), "0 0 3 3"},
		"of the inner packet, on node": {nil, marking(t, interception.Prerouting, interception.Match{L4: interception.TCP()}, 4), "0 0 0 4"},
	} {
		world := tunnelWorld("vxlan")
		for i, plan := range []*interception.Plan{c.client, c.node} {
			if plan != nil {
				world.Namespaces[i].Plans = []*interception.Plan{plan}
			}
		}
		journey := followed(t, world, parsed(t, "tcp uid 1000 gid 1000 > 198.51.100.7:443"), nil)
		var marks []string
		for _, o := range journey.Outcomes {
			marks = append(marks, string('0'+rune(o.Header.Mark)))
		}
		if got := strings.Join(marks, " "); got != c.want {
			t.Errorf("%s: got %s, want %s\n%s", name, got, c.want, journey.Report())
		}
	}
}

// TestTunnelOwner has a rule about the sender of the outer packet: it is that of the inner one, in
// the same namespace.
func TestTunnelOwner(t *testing.T) {
	t.Parallel()
	world := tunnelWorld("vxlan")
	world.Namespaces[0].Plans = []*interception.Plan{
		marking(t, interception.Output, interception.Match{L4: interception.UDP(), UID: interception.Is(interception.UIDs(1000))}, 5),
	}
	for uid, want := range map[string]interception.Mark{"1000": 5, "1001": 0} {
		journey := followed(t, world, parsed(t, "tcp uid "+uid+" gid 0 > 198.51.100.7:443"), nil)
		if got := journey.Outcomes[1].Header.Mark; got != want {
			t.Errorf("of user %s: mark %d, want %d", uid, got, want)
		}
	}
}

// TestTunnelNeighbours has rules about the packets of a tunnel that carry the question for the next
// hop, without a mark, and its answer.
func TestTunnelNeighbours(t *testing.T) {
	t.Parallel()
	const found, lost = "client, node: sent by eth0", "client, node: unroutable: no neighbour has the address"
	tunnelled := interception.UDP()
	for name, c := range map[string]struct {
		namespace int
		hook      interception.Hook
		drops     interception.Match
		want      string
	}{
		"all questions": {0, interception.Output, interception.Match{L4: tunnelled, Mark: interception.Not(interception.WholeMark(1))}, lost},
		"all answers":   {1, interception.Output, interception.Match{L4: tunnelled}, lost},
		"neither": {
			1, interception.Output, interception.Match{L4: tunnelled, Mark: interception.Is(interception.WholeMark(1))}, found,
		},
	} {
		world := tunnelWorld("vxlan")
		world.Namespaces[0].Plans = []*interception.Plan{marking(t, interception.Output, interception.Match{L4: interception.TCP()}, 1)}
		n := &world.Namespaces[c.namespace]
		n.Plans = append(n.Plans, build(t, func(b *interception.Builder) {
			filter := b.Filter("filter")
			filter.Entry(c.hook, interception.Match{}, "why")
			filter.Do("drop", c.drops, interception.Drop{}, "why")
		}))
		journey := followed(t, world, parsed(t, "tcp uid 1000 gid 1000 > 198.51.100.7:443"), nil)
		if !strings.HasPrefix(journey.String(), c.want) {
			t.Errorf("%s dropped: got %s, want %s\n%s", name, journey, c.want, journey.Report())
		}
	}
}

// TestTunnelsEnd has tunnels that do not lead to their far end.
func TestTunnelsEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(w *trace.World)
		want   string
	}{
		"into itself": {func(w *trace.World) {
			w.Namespaces[0].Routes = append(w.Namespaces[0].Routes, interception.Route{
				Destination: netip.MustParsePrefix("10.244.0.1/32"), Device: "tun0", Gateway: netip.MustParseAddr("172.16.0.1"),
			})
		}, "client: unroutable: a tunnel leads into itself"},
		"to another number":   {func(w *trace.World) { w.Namespaces[1].Links[4].Geneve.VNI = 8 }, "client, node: refused: nothing listens at 10.244.0.1:6081"},
		"from another sender": {func(w *trace.World) { w.Namespaces[1].Links[4].Geneve.Remote = netip.MustParseAddr("10.244.0.6") }, "client, node: refused: nothing listens"},
		"of another kind": {func(w *trace.World) {
			w.Namespaces[1].Links[4].VXLAN, w.Namespaces[1].Links[4].Geneve = vxlan("10.244.0.2"), nil
			w.Namespaces[1].Links[4].VXLAN.Port = 6081
		}, "client, node: refused: nothing listens"},
		"to no gateway": {func(w *trace.World) { w.Namespaces[1].Links[4].Addresses = nil }, "client, node: unroutable: no neighbour has the address"},
	} {
		world := tunnelWorld("geneve")
		c.change(&world)
		journey := followed(t, world, parsed(t, "tcp uid 1000 gid 1000 > 198.51.100.7:443"), nil)
		if !strings.HasPrefix(journey.String(), c.want) {
			t.Errorf("%s: got %s, want %s", name, journey, c.want)
		}
	}
	// Two tunnels that carry each other.
	world := tunnelWorld("vxlan")
	other := trace.Link{Name: "tun1", Addresses: []netip.Prefix{netip.MustParsePrefix("172.17.0.2/30")}, VXLAN: vxlan("172.16.0.1")}
	world.Namespaces[0].Links = append(world.Namespaces[0].Links, other)
	world.Namespaces[0].Routes = append(world.Namespaces[0].Routes, interception.Route{Destination: netip.MustParsePrefix("10.244.0.1/32"), Device: "tun1"})
	journey := followed(t, world, parsed(t, "tcp uid 1000 gid 1000 > 198.51.100.7:443"), nil)
	if end := journey.End(); end.Cause != trace.Circular {
		t.Errorf("tunnels in each other: %s", end)
	}
}

// TestWiresOfPlans has a plan that makes a wire, with its far end, and a tunnel.
func TestWiresOfPlans(t *testing.T) {
	t.Parallel()
	world := nodeWorld()
	world.Namespaces[1].Plans = []*interception.Plan{build(t, func(b *interception.Builder) {
		b.Link(interception.Link{ID: "wire", Name: "out", Veth: &interception.Veth{Peer: "pout", Namespace: "server"}, Why: "why"})
		b.Address(interception.Address{ID: "end", Device: "out", Prefix: netip.MustParsePrefix("172.16.0.1/30"), Why: "why"})
		b.Route(interception.Route{ID: "route", Destination: netip.MustParsePrefix("198.51.100.7/32"), Device: "out", Gateway: netip.MustParseAddr("172.16.0.2"), Why: "why"})
	})}
	world.Namespaces[2].Plans = []*interception.Plan{build(t, func(b *interception.Builder) {
		b.Address(interception.Address{ID: "end", Device: "pout", Prefix: netip.MustParsePrefix("172.16.0.2/30"), Why: "why"})
		b.Address(interception.Address{ID: "service", Device: "lo", Prefix: netip.MustParsePrefix("198.51.100.7/32"), Why: "why"})
	})}
	journey := followed(t, world, parsed(t, "tcp uid 1000 gid 1000 > 198.51.100.7:8080"), nil)
	if end := journey.End(); end.Namespace != "server" || end.Verdict != trace.Delivered || end.Link != "pout" {
		t.Errorf("got %s", journey.Report())
	}
	for link, want := range map[interception.Interface]bool{"eth0": true, "lo": false} {
		if got := world.Crosses(link); got != want {
			t.Errorf("%s crosses: %v", link, got)
		}
	}
}

// TestSourceFilter has packets that come to the node by a link that does, and one that does not,
// lead back to their source, with each setting of rp_filter.
func TestSourceFilter(t *testing.T) {
	t.Parallel()
	const back, astray = "tcp in vetha 10.244.0.2:40000 > 10.244.0.6:8080", "tcp in vethb 10.244.0.2:40000 > 198.51.100.7:443"
	for name, c := range map[string]struct {
		sysctls map[string]int
		line    string
		want    trace.Cause
		change  func(n *trace.Namespace)
	}{
		"none":                {nil, astray, 0, nil},
		"strict, back":        {map[string]int{"ipv4/conf/all/rp_filter": 1}, back, 0, nil},
		"strict":              {map[string]int{"ipv4/conf/all/rp_filter": 1}, astray, trace.Filtered, nil},
		"strict, of the link": {map[string]int{"ipv4/conf/vethb/rp_filter": 1}, astray, trace.Filtered, nil},
		"strict, of another":  {map[string]int{"ipv4/conf/vetha/rp_filter": 1}, astray, 0, nil},
		"the greater counts":  {map[string]int{"ipv4/conf/all/rp_filter": 1, "ipv4/conf/vethb/rp_filter": 2}, astray, 0, nil},
		"loose":               {map[string]int{"ipv4/conf/vethb/rp_filter": 2}, astray, 0, nil},
		"loose, no route": {map[string]int{"ipv4/conf/vethb/rp_filter": 2}, astray, trace.Filtered, func(n *trace.Namespace) {
			n.Routes = []interception.Route{{Type: interception.RouteBlackhole, Destination: netip.MustParsePrefix("10.244.0.2/32")}}
		}},
		"loose, no address": {map[string]int{"ipv4/conf/vethb/rp_filter": 2}, astray, trace.Filtered, func(n *trace.Namespace) { n.Links[3].Addresses = nil }},
		"own source":        {nil, "tcp in vethb 10.244.0.1:40000 > 198.51.100.7:443", trace.Martian, nil},
		"own source, strict": {
			map[string]int{"ipv4/conf/all/rp_filter": 1, "ipv4/conf/vethb/accept_local": 1}, "tcp in vethb 10.244.0.1:40000 > 198.51.100.7:443", trace.Filtered, nil,
		},
		"own source, strict, its link": {
			map[string]int{"ipv4/conf/all/rp_filter": 1, "ipv4/conf/vethb/accept_local": 1}, "tcp in vethb 10.244.0.5:40000 > 198.51.100.7:443", 0, nil,
		},
		"by a mark": {map[string]int{"ipv4/conf/all/rp_filter": 1}, "tcp in vethb mark 0x1 10.244.0.2:40000 > 198.51.100.7:443", trace.Filtered, markRouted},
		"by a mark that counts": {
			map[string]int{"ipv4/conf/all/rp_filter": 1, "ipv4/conf/all/src_valid_mark": 1}, "tcp in vethb mark 0x1 10.244.0.2:40000 > 10.244.0.1:8080", 0, markRouted,
		},
		"IPv6": {map[string]int{"ipv4/conf/all/rp_filter": 1}, sixth(astray), 0, nil},
	} {
		world := trace.World{Namespaces: nodeWorld().Namespaces[1:2]}
		world.Namespaces[0].Sysctls = c.sysctls
		if c.change != nil {
			c.change(&world.Namespaces[0])
		}
		if outcome := traced(t, world, parsed(t, c.line)); outcome.Cause != c.want {
			t.Errorf("%s: got %s", name, outcome)
		}
	}
}

// markRouted sends packets with mark 1 by vethb.
func markRouted(n *trace.Namespace) {
	plan, err := interception.Build("test-marks", func(b *interception.Builder) {
		b.Route(interception.Route{ID: "route", Destination: netip.MustParsePrefix("0.0.0.0/0"), Device: "vethb", Table: 7, Why: "why"})
		b.PolicyRule(interception.PolicyRule{ID: "rule", Family: interception.IPv4, Mark: interception.MarkBits{Value: 1, Mask: 1}, Table: 7, Priority: 7, Why: "why"})
	})
	if err != nil {
		panic(err)
	}
	n.Plans = append(n.Plans, plan)
}
