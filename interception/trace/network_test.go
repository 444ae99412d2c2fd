// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// The links, addresses, routes, policy rules and sysctls of plans apply to the namespace.

func TestAddressesOfPlans(t *testing.T) {
	t.Parallel()
	world := pod(build(t, func(b *interception.Builder) {
		b.Link(interception.Link{ID: "link", Name: "mesh0", Why: "why"})
		b.Address(interception.Address{ID: "six", Device: "lo", Prefix: addresses("::6/128")[0], Why: "why"})
		b.Address(interception.Address{ID: "mesh", Device: "mesh0", Prefix: addresses("10.99.0.1/24")[0], Why: "why"})
		b.Address(interception.Address{ID: "there-already", Device: "eth0", Prefix: addresses("10.244.0.2/24")[0], Why: "why"})
	}))
	world.Namespaces[0].Listeners = append(world.Namespaces[0].Listeners, trace.Listener{
		Name: "six", Protocol: interception.ProtocolTCP, Address: netip.MustParseAddr("::6"), Port: 80,
	})
	for _, c := range []struct {
		packet trace.Packet
		want   string
	}{
		{connect(application, "[::6]:80"), "delivered to six at [::6]:80; no rule decided"},
		{connect(application, "10.99.0.1:8080"), "delivered to application at 10.99.0.1:8080; no rule decided"},
		{connect(application, "10.99.0.9:80"), "sent by mesh0 to 10.99.0.9:80; no rule decided"},
		{connect(application, "192.0.2.1:80"), "sent by eth0 to 192.0.2.1:80; no rule decided"},
	} {
		expect(t, world, c.packet, c.want)
	}
	if links := world.Namespaces[0].Links; len(links) != 2 || len(links[0].Addresses) != 2 {
		t.Errorf("the trace changed the world: %v", links)
	}
	// A plan's link leads only to its own subnets.
	only4 := trace.Sidecar(build(t, func(b *interception.Builder) {
		b.Link(interception.Link{ID: "link", Name: "mesh0", Why: "why"})
		b.Address(interception.Address{ID: "mesh", Device: "mesh0", Prefix: addresses("fd99::1/64")[0], Why: "why"})
	}), trace.SidecarOptions{Addresses: addresses("10.244.0.2/24")})
	expect(t, only4, connect(application, "[2001:db8::1]:80"), "unroutable: no link leads to the destination; no rule decided")
}

func TestMissingDevice(t *testing.T) {
	t.Parallel()
	for want, fill := range map[string]func(*interception.Builder){
		"plan of test-plan: address 10.99.0.1/24 (mesh): the namespace has no link mesh0": func(b *interception.Builder) {
			b.Address(interception.Address{ID: "mesh", Device: "mesh0", Prefix: addresses("10.99.0.1/24")[0], Why: "why"})
		},
		"plan of test-plan: route to 10.99.0.0/24 (mesh): the namespace has no link mesh0": func(b *interception.Builder) {
			b.Route(interception.Route{ID: "mesh", Device: "mesh0", Destination: addresses("10.99.0.0/24")[0], Why: "why"})
		},
	} {
		_, err := trace.Trace(pod(build(t, fill)), connect(application, "192.0.2.1:80"))
		if !errors.Is(err, trace.ErrWorld) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want ErrWorld with %q", err, want)
		}
	}
}

// routes returns a plan of these routes, a link net1 with 10.77.0.2, and policy rules: mark 1 leads
// to table 100, mark 2 to 200 and then, like every mark that ends in 2, to 100.
func routes(t *testing.T, list ...interception.Route) *interception.Plan {
	t.Helper()
	return build(t, func(b *interception.Builder) {
		b.Link(interception.Link{ID: "link", Name: "net1", Why: "why"})
		b.Address(interception.Address{ID: "address", Device: "net1", Prefix: addresses("10.77.0.2/24")[0], Why: "why"})
		for i, route := range list {
			route.ID, route.Why = interception.RuleID("route."+string(rune('a'+i))), "why"
			b.Route(route)
		}
		for i, rule := range []struct {
			mark  interception.MarkBits
			table interception.RoutingTable
		}{{whole(1), 100}, {whole(2), 200}, {marked(2, 0xf), 100}} {
			b.PolicyRule(interception.PolicyRule{
				ID: interception.RuleID("rule." + string(rune('a'+i))), Family: interception.IPv4, Mark: rule.mark, Table: rule.table,
				Priority: uint32(100 - 10*(i%2)), Why: "why",
			})
		}
	})
}

// Table 100 leads to net1, and so tells whether the packet met the rule.
func TestSelectorsOfPolicyRules(t *testing.T) {
	t.Parallel()
	bound := connect(application, "198.51.100.1:80")
	bound.Src = netip.MustParseAddrPort("10.244.0.2:4711")
	for name, c := range map[string]struct {
		rule   interception.PolicyRule
		packet trace.Packet
		want   string
	}{
		"a destination": {interception.PolicyRule{Destination: addresses("198.51.100.0/24")[0]}, connect(application, "198.51.100.1:80"), "net1"},
		"another destination": {
			interception.PolicyRule{Destination: addresses("198.51.101.0/24")[0]}, connect(application, "198.51.100.1:80"), "eth0",
		},
		"a bound source": {interception.PolicyRule{Source: addresses("10.244.0.2/32")[0]}, bound, "net1"},
		"a chosen source": {
			interception.PolicyRule{Source: addresses("10.244.0.2/32")[0]}, connect(application, "198.51.100.1:80"), "net1",
		},
		"another source":                         {interception.PolicyRule{Source: addresses("10.244.0.3/32")[0]}, bound, "eth0"},
		"what sockets send":                      {interception.PolicyRule{In: "lo"}, bound, "net1"},
		"what comes by a link":                   {interception.PolicyRule{In: "eth0"}, bound, "eth0"},
		"one selector of two":                    {interception.PolicyRule{In: "lo", Mark: whole(9)}, bound, "eth0"},
		"the main table before any of the plan":  {interception.PolicyRule{In: "lo", Table: 254, Priority: 49}, bound, "eth0"},
		"the main table, by the number of plans": {interception.PolicyRule{In: "lo", Priority: 49}, bound, "eth0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			world := pod(build(t, func(b *interception.Builder) {
				b.Link(interception.Link{ID: "link", Name: "net1", Why: "why"})
				b.Address(interception.Address{ID: "address", Device: "net1", Prefix: addresses("10.77.0.2/24")[0], Why: "why"})
				b.Route(interception.Route{ID: "route", Destination: addresses("0.0.0.0/0")[0], Device: "net1", Table: 100, Why: "why"})
				rule := c.rule
				rule.ID, rule.Family, rule.Why = "rule", interception.IPv4, "why"
				if rule.Priority == 0 {
					rule.Priority, rule.Table = 50, 100
				} else {
					b.PolicyRule(interception.PolicyRule{ID: "later", Family: interception.IPv4, In: "lo", Table: 100, Priority: 50, Why: "why"})
				}
				b.PolicyRule(rule)
			}))
			got, err := trace.Trace(world, c.packet)
			if err != nil {
				t.Fatal(err)
			}
			if got.Verdict != trace.Sent || string(got.Link) != c.want {
				t.Errorf("got %s, want it sent by %s", got, c.want)
			}
		})
	}
}

// TestAnswerOfMarkedListener has a listener whose answers leave by the link that its mark leads to.
func TestAnswerOfMarkedListener(t *testing.T) {
	t.Parallel()
	plan := routes(t, interception.Route{Table: 100, Destination: addresses("0.0.0.0/0")[0], Device: "net1"})
	for _, c := range []struct {
		listener, socket interception.Mark
		link             string
	}{{0, 0, "eth0"}, {1, 0, "net1"}, {0, 1, "net1"}, {1, 5, "eth0"}} {
		world := pod(plan)
		world.Namespaces[0].Listeners = []trace.Listener{
			{Name: "marked", Protocol: interception.ProtocolTCP, Port: 80, Mark: c.listener},
		}
		opened, err := trace.Trace(world, trace.Packet{
			From: trace.Arrival{Link: "eth0"}, Protocol: interception.ProtocolTCP,
			Src: netip.MustParseAddrPort("198.51.100.1:4711"), Dst: netip.MustParseAddrPort("10.244.0.2:80"),
		})
		if err != nil {
			t.Fatal(err)
		}
		answer, err := trace.Trace(world, opened.Answer(trace.Socket{UID: application, Mark: c.socket}))
		if err != nil {
			t.Fatal(err)
		}
		if answer.Verdict != trace.Sent || string(answer.Link) != c.link {
			t.Errorf("listener with mark %d, socket with %d: the answer is %s, want it sent by %s", c.listener, c.socket, answer, c.link)
		}
	}
}

// TestInheritedMark has a listener without a mark, and clients whose packets get one: where a plan
// says so, the answers have it, those to later packets too.
func TestInheritedMark(t *testing.T) {
	t.Parallel()
	net1 := routes(t, interception.Route{Table: 100, Destination: addresses("0.0.0.0/0")[0], Device: "net1"})
	for _, c := range []struct {
		inherits int
		listener interception.Mark
		protocol interception.Protocol
		link     string
	}{
		{1, 0, interception.ProtocolTCP, "net1"},
		{0, 0, interception.ProtocolTCP, "eth0"},
		{1, 5, interception.ProtocolTCP, "eth0"},
		{1, 0, interception.ProtocolUDP, "eth0"},
	} {
		world := pod(net1, build(t, func(b *interception.Builder) {
			b.Sysctl(interception.Sysctl{ID: "accept", Key: "ipv4/tcp_fwmark_accept", Value: c.inherits, Why: "why"})
			marks := b.Mangle("marks")
			marks.Entry(interception.Prerouting, interception.Match{}, "why")
			marks.Do("mark", interception.Match{}, interception.SetMark{Mark: interception.WholeMark(1)}, "why")
		}))
		world.Namespaces[0].Listeners = []trace.Listener{{Name: "server", Protocol: c.protocol, Port: 80, Mark: c.listener}}
		there := traced(t, world, trace.Packet{
			From: trace.Arrival{Link: "eth0"}, Protocol: c.protocol,
			Src: netip.MustParseAddrPort("198.51.100.1:4711"), Dst: netip.MustParseAddrPort("10.244.0.2:80"),
		})
		for _, packet := range []string{"first", "next"} {
			back := traced(t, world, there.Answer(trace.Socket{UID: application}))
			if back.Verdict != trace.Sent || string(back.Link) != c.link {
				t.Errorf("%+v: the answer to the %s packet is %s, want it sent by %s", c, packet, back, c.link)
			}
			further := there.Next()
			further.Flow = back.Flow
			there = traced(t, world, further)
		}
	}
}

func TestRoutesOfPlans(t *testing.T) {
	t.Parallel()
	const mainTable, localTable = interception.RoutingTable(254), interception.RoutingTable(255)
	route := func(table interception.RoutingTable, destination string, device interception.Interface) interception.Route {
		return interception.Route{Table: table, Destination: addresses(destination)[0], Device: device}
	}
	local := func(table interception.RoutingTable, destination string) interception.Route {
		r := route(table, destination, "lo")
		r.Type = interception.RouteLocal
		return r
	}
	to := func(mark interception.Mark, dst string) trace.Packet {
		packet := connect(application, dst)
		packet.From = trace.Socket{UID: application, Mark: mark}
		return packet
	}
	transparent := func(packet trace.Packet) trace.Packet {
		packet.From = trace.Socket{UID: application, Mark: 1, Transparent: true}
		return packet
	}
	for name, c := range map[string]struct {
		routes []interception.Route
		packet trace.Packet
		want   string
		src    string
	}{
		"main table": {
			[]interception.Route{route(0, "198.51.100.0/24", "net1")}, to(0, "198.51.100.1:80"), "sent by net1 to 198.51.100.1:80", "10.77.0.2",
		},
		"main table, by its number, before the implied default": {
			[]interception.Route{route(mainTable, "0.0.0.0/0", "net1")}, to(0, "198.51.100.1:80"), "sent by net1 to 198.51.100.1:80", "10.77.0.2",
		},
		"a shorter one than the implied": {
			[]interception.Route{route(0, "10.244.0.0/16", "net1")}, to(0, "10.244.0.9:80"), "sent by eth0 to 10.244.0.9:80", "10.244.0.2",
		},
		"the longest": {
			[]interception.Route{route(0, "198.51.100.1/32", "net1"), route(0, "198.51.0.0/16", "eth0")},
			to(0, "198.51.100.1:80"),
			"sent by net1 to 198.51.100.1:80", "10.77.0.2",
		},
		"a table without a rule": {
			[]interception.Route{route(7, "0.0.0.0/0", "net1")}, to(0, "198.51.100.1:80"), "sent by eth0 to 198.51.100.1:80", "10.244.0.2",
		},
		"another mark": {
			[]interception.Route{route(100, "0.0.0.0/0", "net1")}, to(5, "198.51.100.1:80"), "sent by eth0 to 198.51.100.1:80", "10.244.0.2",
		},
		"by the mark": {
			[]interception.Route{route(100, "0.0.0.0/0", "net1")}, to(1, "198.51.100.1:80"), "sent by net1 to 198.51.100.1:80", "10.77.0.2",
		},
		"some bits of the mark": {
			[]interception.Route{route(100, "0.0.0.0/0", "net1")}, to(0x32, "198.51.100.1:80"), "sent by net1 to 198.51.100.1:80", "10.77.0.2",
		},
		"the lower priority first": {
			[]interception.Route{route(100, "0.0.0.0/0", "net1"), route(200, "0.0.0.0/0", "eth0")},
			to(2, "198.51.100.1:80"),
			"sent by eth0 to 198.51.100.1:80", "10.244.0.2",
		},
		"the next rule when a table has no route": {
			[]interception.Route{route(100, "0.0.0.0/0", "net1"), route(200, "203.0.113.0/24", "eth0")},
			to(2, "198.51.100.1:80"),
			"sent by net1 to 198.51.100.1:80", "10.77.0.2",
		},
		"own addresses come before every rule": {
			[]interception.Route{route(100, "0.0.0.0/0", "net1")}, to(1, "10.244.0.2:8080"), "delivered to application at 10.244.0.2:8080", "10.244.0.2",
		},
		"a rule of IPv4 says nothing about IPv6": {
			[]interception.Route{local(100, "::/0")}, to(1, "[2001:db8::1]:8080"), "sent by eth0 to [2001:db8::1]:8080", "fd00:10:244::2",
		},
		"local by the mark": {
			[]interception.Route{local(100, "0.0.0.0/0")}, to(1, "198.51.100.1:8080"), "unroutable: no link leads to the destination", "invalid IP",
		},
		"local by the mark, from a transparent socket": {
			[]interception.Route{local(100, "0.0.0.0/0")},
			transparent(to(1, "198.51.100.1:8080")),
			"delivered to application at 198.51.100.1:8080", "198.51.100.1",
		},
		"local for all": {
			[]interception.Route{local(localTable, "198.51.100.0/24")}, to(0, "198.51.100.1:8080"), "delivered to application at 198.51.100.1:8080", "198.51.100.1",
		},
		"local for all, v6": {
			[]interception.Route{local(localTable, "2001:db8::/32")}, to(0, "[2001:db8::1]:8080"), "delivered to application at [2001:db8::1]:8080", "fd00:10:244::2",
		},
		"a link without an address of the family": {
			[]interception.Route{route(0, "2001:db8::/32", "net1")}, to(0, "[2001:db8::1]:8080"), "sent by net1 to [2001:db8::1]:8080", "fd00:10:244::2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outcome := traced(t, pod(routes(t, c.routes...)), c.packet)
			if got := outcome.String(); got != c.want+"; no rule decided" || outcome.Packet.Src.Addr().String() != c.src {
				t.Errorf("got %s, from %s\nwant %s, from %s", got, outcome.Packet.Src, c.want, c.src)
			}
		})
	}
}

// In Output a new mark causes a new route, and later rules still see the old link. A mark that the
// packet had when it left its socket decided on the first route.
func TestReroutingByMark(t *testing.T) {
	t.Parallel()
	eth0 := interception.Is(interception.Interfaces("eth0"))
	plan := func(hook interception.Hook) *interception.Plan {
		return build(t, func(b *interception.Builder) {
			deliver(b)
			chain := b.Mangle("chain")
			chain.Entry(hook, interception.Match{Family: interception.IPv4}, "why")
			chain.Do("mark", interception.Match{}, interception.SetMark{Mark: whole(1)}, "why")
			filter := b.Filter("filter")
			filter.Entry(interception.Output, interception.Match{Out: eth0, Mark: interception.Is(whole(1))}, "why")
		})
	}
	outcome := traced(t, pod(plan(interception.Output)), connect(application, "198.51.100.1:8080"))
	if got := outcome.String(); got != "delivered to application at 198.51.100.1:8080; mark: why" {
		t.Errorf("%s", outcome.Report())
	}
	expectPath(t, outcome, "mangle.output.chain", "mark", "filter.output.filter")
	if outcome.Packet.Src.Addr().String() != "10.244.0.2" {
		t.Errorf("the source is %s, which is that of another route than the first", outcome.Packet.Src)
	}
	expect(t, pod(plan(interception.Postrouting)), connect(application, "198.51.100.1:8080"), "sent by eth0 to 198.51.100.1:8080; no rule decided")
	// An incoming packet is routed by its mark from Prerouting.
	expect(t, pod(plan(interception.Prerouting)), arriving("10.244.0.9:40000", "198.51.100.1:8080"),
		"delivered to application at 198.51.100.1:8080; no rule decided")
	expect(t, pod(plan(interception.Input)), arriving("10.244.0.9:40000", "198.51.100.1:8080"),
		"unroutable: it is not for this namespace, which does not forward; no rule decided")
}

// A new destination may have no route, or only one that its source may not take.
func TestReroutingToNowhere(t *testing.T) {
	t.Parallel()
	plan := build(t, func(b *interception.Builder) {
		nat := entered(b.NAT("nat"))
		nat.Do("v4", any4, interception.DNATTo{Addr: netip.MustParseAddr("198.51.100.1")}, "why")
		nat.Do("v6", any6, interception.DNATTo{Addr: netip.MustParseAddr("2001:db8::1")}, "why")
	})
	world := trace.Sidecar(plan, trace.SidecarOptions{Addresses: addresses("10.244.0.2/24", "fe80::2/64")})
	expect(t, world, connect(application, "127.0.0.1:80"), "unroutable: such an address cannot be seen on this link; v4: why")
	expect(t, world, connect(application, "[::1]:80"), "unroutable: no link leads to the destination; v6: why")
}

func TestSysctlsOfPlans(t *testing.T) {
	t.Parallel()
	with := func(keys ...string) trace.World {
		return pod(build(t, func(b *interception.Builder) {
			for i, key := range keys {
				b.Sysctl(interception.Sysctl{ID: interception.RuleID("sysctl." + string(rune('a'+i))), Key: key, Value: 1, Why: "why"})
			}
			chain := b.NAT("chain")
			chain.Entry(interception.Prerouting, any4, "why")
			chain.Do("dnat", interception.Match{Family: interception.IPv4, L4: interception.TCP().To(interception.Ports(80))}, interception.DNATTo{Addr: netip.MustParseAddr("127.0.0.1"), Port: 8080}, "why")
		}))
	}
	const martian = "unroutable: such an address cannot be seen on this link; "
	toLoopback, fromItself := arriving("10.244.0.9:40000", "10.244.0.2:80"), arriving("10.244.0.2:40000", "10.244.0.2:8080")
	expect(t, with(), toLoopback, martian+"dnat: why")
	expect(t, with("ipv4/conf/eth1/route_localnet"), toLoopback, martian+"dnat: why")
	for _, link := range []string{"all", "eth0"} {
		expect(t, with("ipv4/conf/"+link+"/route_localnet"), toLoopback, "delivered to application at 127.0.0.1:8080, originally 10.244.0.2:80; dnat: why")
		expect(t, with("ipv4/conf/"+link+"/route_localnet"), fromItself, martian+"no rule decided")
		expect(t, with("ipv4/conf/"+link+"/accept_local"), fromItself, "delivered to application at 10.244.0.2:8080; no rule decided")
	}
}

// The members of a live set are known only if the world lists them; otherwise no later rule counts.
func TestLiveSets(t *testing.T) {
	t.Parallel()
	plan := build(t, func(b *interception.Builder) {
		pods := b.LiveSet("pods", interception.IPv4, "why")
		chain := entered(b.Filter("chain"))
		chain.Do("log", interception.Match{DstSet: interception.Is(pods)}, interception.Log{Prefix: "pod"}, "why")
		chain.Do("tcp", interception.Match{DstSet: interception.Is(pods), L4: interception.TCP()}, interception.Drop{}, "why")
		chain.Do("not-udp", interception.Match{DstSet: interception.Not(pods), L4: interception.UDP().To(interception.Ports(53))}, interception.Reject{}, "why")
	})
	given := func(members ...string) trace.World {
		world := pod(plan)
		world.Namespaces[0].LiveSets = []trace.LiveSet{{Owner: plan.Owner, Name: "pods", Members: set(members...)}}
		return world
	}
	tcp, udp := connect(application, "192.0.2.1:80"), datagram(connect(application, "192.0.2.1:53"))
	for _, c := range []struct {
		world  trace.World
		packet trace.Packet
		want   string
	}{
		{pod(plan), tcp, "unknown: the world does not give the members of a live set; tcp: why"},
		{pod(plan), udp, "unknown: the world does not give the members of a live set; not-udp: why"},
		{pod(plan), connect(application, "[2001:db8::1]:80"), "sent by eth0 to [2001:db8::1]:80; no rule decided"},
		{pod(plan), datagram(tcp), "sent by eth0 to 192.0.2.1:80; no rule decided"},
		{given(), tcp, "sent by eth0 to 192.0.2.1:80; no rule decided"},
		{given(), udp, "rejected on the way to 192.0.2.1:53; not-udp: why"},
		{given("192.0.2.0/24"), tcp, "dropped on the way to 192.0.2.1:80; tcp: why"},
		{given("192.0.2.0/24"), udp, "sent by eth0 to 192.0.2.1:53; no rule decided"},
	} {
		expect(t, c.world, c.packet, c.want)
	}
	wrong := func(sets ...trace.LiveSet) trace.World {
		world := pod(plan)
		world.Namespaces[0].LiveSets = sets
		return world
	}
	pods := trace.LiveSet{Owner: plan.Owner, Name: "pods"}
	fixed := build(t, func(b *interception.Builder) { b.Set("pods", set("10.0.0.0/8"), "why") })
	ofFixed := pod(fixed)
	ofFixed.Namespaces[0].LiveSets = []trace.LiveSet{{Owner: fixed.Owner, Name: "pods"}}
	for want, world := range map[string]trace.World{
		"no plan of that owner":     wrong(trace.LiveSet{Owner: "other-plan", Name: "pods"}),
		"has no such set":           wrong(trace.LiveSet{Owner: plan.Owner, Name: "nodes"}),
		"must be of v4: fd00::/8":   wrong(trace.LiveSet{Owner: plan.Owner, Name: "pods", Members: set("fd00::/8")}),
		"its members are given twi": wrong(pods, pods),
		"it is fixed":               ofFixed,
	} {
		if _, err := trace.Trace(world, tcp); !errors.Is(err, trace.ErrWorld) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want ErrWorld with %q", err, want)
		}
	}
}
