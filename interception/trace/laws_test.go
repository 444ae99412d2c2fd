// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/interception/trace"
	"github.com/meshcni/meshcni/internal/testing/sample"
)

// situation is a packet in a pod with the plan of a redirect.
type situation struct {
	sidecar.Redirect
	seed    uint64
	plan    *interception.Plan
	facts   interception.Facts
	packet  trace.Packet
	outcome trace.Outcome
}

// law is a property of every situation that it applies to.
type law struct {
	name           string
	applies, holds func(situation) bool
}

// laws returns those of a sidecar, except for the order that sidecar.Plan documents:
// TestOrderOfPrecedence tests that.
var laws = [...]law{
	{
		"the proxy's own traffic never goes to its outbound port, nor to its resolver",
		situation.fromProxy,
		func(s situation) bool { return !s.captured(s.Proxy.OutboundPort) && !s.captured(s.DNS.Port) },
	},
	{
		"the proxy's own traffic goes to its inbound port only when the pod calls itself",
		func(s situation) bool { return s.fromProxy() && !s.callsItself() },
		situation.untouched,
	},
	{
		"the pod calls itself through the proxy's inbound port",
		func(s situation) bool {
			return s.callsItself() && s.planned() && !s.excludedFirst() && (!s.tproxies() || s.includedInbound())
		},
		func(s situation) bool { return s.captured(s.Proxy.InboundPort) },
	},
	{
		"an excluded outbound port is left alone, save the pod's call to itself in TPROXY mode",
		func(s situation) bool { return s.excludedPort() && !(s.tproxies() && s.callsItself()) },
		situation.untouched,
	},
	{
		"an excluded interface is left alone, unless it is rerouted",
		func(s situation) bool { return s.Interfaces.Exclude.Contains(s.link()) && !s.rerouted() },
		situation.untouched,
	},
	{
		"a connection that was there before is left alone when it is to be spared",
		situation.spared, situation.untouched,
	},
	{
		"a passthrough source over lo is left alone",
		situation.passesThrough, situation.untouched,
	},
	{
		"an excluded destination is left alone, save the pod's call to itself and queries",
		func(s situation) bool {
			return s.outbound() && s.Outbound.Exclude.Contains(s.dst()) && !s.callsItself() && !s.asks()
		},
		situation.untouched,
	},
	{
		"a query goes to the resolver when nothing above excludes it",
		func(s situation) bool {
			return s.asks() && s.covered() && !s.excludedFirst() && !s.fromProxy() && !s.passesThrough() && !s.excludedGroup()
		},
		func(s situation) bool { return s.captured(s.DNS.Port) },
	},
	{
		"an included destination or port goes to the outbound port when nothing above excludes it",
		func(s situation) bool { return s.planned() && s.included() && !s.excluded() },
		func(s situation) bool { return s.captured(s.Proxy.OutboundPort) },
	},
	{
		"a group that is not captured is left alone, save the pod's call to itself",
		func(s situation) bool { return s.excludedGroup() && !s.callsItself() },
		situation.untouched,
	},
	{
		"what is not included is left alone, save the pod's call to itself and queries",
		func(s situation) bool { return s.outbound() && !s.included() && !s.callsItself() && !s.asks() },
		situation.untouched,
	},
	{
		"what is local never leaves the pod",
		func(s situation) bool { return s.outbound() && s.local() },
		func(s situation) bool { return s.outcome.Link == "lo" && s.outcome.Verdict != trace.Sent },
	},
	{
		"what the application sends over lo is left alone, save by CaptureLocal and to port 53",
		func(s situation) bool {
			return s.outbound() && s.local() && !s.fromProxy() && !s.Outbound.CaptureLocal && (s.DNS.Port == 0 || s.port() != 53)
		},
		situation.untouched,
	},
	{
		"a loopback destination is left alone, save queries",
		func(s situation) bool { return s.outbound() && s.Outbound.Loopback.Contains(s.dst()) && !s.asks() },
		situation.untouched,
	},
	{
		"an included inbound port goes to the inbound port",
		func(s situation) bool {
			return s.inbound() && s.planned() && s.includedInbound() && !s.excludedFirst() && !s.rerouted()
		},
		func(s situation) bool { return s.captured(s.Proxy.InboundPort) },
	},
	{
		"an excluded inbound port and the tunnel port are left alone, unless the interface is rerouted",
		func(s situation) bool { return s.inbound() && s.excludedInbound() && !s.rerouted() }, situation.untouched,
	},
	{
		"an inbound port that is not included is left alone, unless the interface is rerouted",
		func(s situation) bool { return s.inbound() && !s.Inbound.Include.Contains(s.port()) && !s.rerouted() },
		situation.untouched,
	},
	{
		"what comes by a rerouted interface goes to the outbound port, or is left alone",
		func(s situation) bool { return s.inbound() && s.rerouted() },
		func(s situation) bool { return s.untouched() || s.captured(s.Proxy.OutboundPort) },
	},
	{
		"udp is left alone, save queries",
		func(s situation) bool { return s.packet.Protocol == interception.ProtocolUDP && !s.asks() },
		situation.untouched,
	},
	{
		"rules of one family decide on no packet of the other",
		func(situation) bool { return true },
		func(s situation) bool {
			for _, step := range s.outcome.Path {
				if !step.Rule.Match.EffectiveFamily().Covers(s.dst()) {
					return false
				}
			}
			return s.covered() || s.untouched()
		},
	},
}

// TestLaws tests each law with the same random situations.
func TestLaws(t *testing.T) {
	t.Parallel()
	situations := randomSituations(t)
	for _, law := range laws {
		t.Run(law.name, func(t *testing.T) {
			t.Parallel()
			applied := 0
			for _, s := range situations {
				if s.outcome.Verdict == trace.Unroutable || !law.applies(s) {
					continue
				}
				applied++
				if !law.holds(s) {
					t.Errorf("seed %d\n%s%s", s.seed, s.plan, s.outcome.Report())
				}
			}
			if applied < 25 {
				t.Errorf("it applies to %d packets only: they test too little", applied)
			}
		})
	}
}

// TestOrderOfPrecedence checks that every line in the doc comment of sidecar.Plan decides about
// some packets, each as documented.
func TestOrderOfPrecedence(t *testing.T) {
	t.Parallel()
	decided := map[string]int{}
	for _, s := range randomSituations(t) {
		if s.outcome.Verdict == trace.Unroutable || !s.covered() {
			continue
		}
		line, port := s.decision()
		decided[line]++
		if port != 0 && !s.captured(port) || port == 0 && !s.untouched() {
			t.Errorf("seed %d: line %s says port %d\n%s%s", s.seed, line, port, s.plan, s.outcome.Report())
		}
	}
	for way, last := range map[string]int{"inbound": 7, "outbound": 13} {
		for n := range last {
			if line := fmt.Sprintf("%s %d", way, n+1); decided[line] < 25 {
				t.Errorf("line %s decides about %d packets only: they test too little", line, decided[line])
			}
		}
	}
}

// randomSituations returns packets in the pods of random redirects, several for each redirect: some
// redirects have a few values that often meet, others any values of [sample.Redirect].
func randomSituations(t *testing.T) []situation {
	t.Helper()
	var all []situation
	for seed := range uint64(1600) {
		choose := sample.Seeded(seed)
		s := situation{seed: seed, facts: interception.Facts{IPv6: choose(4) > 0}}
		packet, world := sample.Packet, sample.World
		if seed%8 == 0 {
			s.Redirect = sample.Redirect(choose)
			packet = s.packetAtEdge
			world = worldOf
		} else {
			s.Redirect = randomRedirect(choose)
		}
		s.plan = planned(t, s.Redirect, s.facts)
		for range 4 {
			s.packet = packet(choose)
			if s.packet.Flags != 0 {
				s.packet.Flags = interception.FlagACK
			}
			s.outcome = traced(t, world(s.plan), s.packet)
			all = append(all, s)
		}
	}
	return all
}

// packetAtEdge returns a packet at the edges of the situation's redirect, sometimes of a living
// connection.
func (s situation) packetAtEdge(c sample.Choices) trace.Packet {
	pod := sample.Pod{Redirect: s.Redirect, Addresses: []netip.Addr{netip.MustParseAddr("10.244.0.2"), netip.MustParseAddr("fd00:10:244::2")}}
	packet := pod.Packet(c)
	if socket, ok := packet.From.(trace.Socket); ok && socket.Transparent {
		packet.From, packet.Src = trace.Socket{UID: socket.UID, GID: socket.GID}, netip.AddrPort{}
	}
	if packet.Protocol == interception.ProtocolTCP && c(6) == 0 {
		packet.Flags = interception.FlagACK
	}
	return packet
}

// worldOf returns the pod with the plan, and the listeners that the plan redirects to.
func worldOf(plans ...*interception.Plan) trace.World {
	return trace.Sidecar(plans[0], trace.SidecarOptions{Loopback: addresses("::6/128"), Listeners: []trace.Listener{
		{Name: "application", Protocol: interception.ProtocolTCP, Port: 8080},
	}})
}

// The settings of a redirect for one family have no effect on the other.
func TestFamiliesAreIndependent(t *testing.T) {
	t.Parallel()
	for seed := range uint64(1000) {
		choose := sample.Seeded(seed)
		redirect, packet := randomRedirect(choose), sample.Packet(choose)
		family := interception.FamilyOf(packet.Dst.Addr())
		// Without servers of a family it would capture all queries of the family.
		redirect.DNS.Servers = interception.PrefixSet{}
		only := redirect
		for _, prefixes := range []*interception.PrefixSet{
			&only.Proxy.PassthroughSources, &only.Outbound.Include, &only.Outbound.Exclude, &only.Outbound.Loopback,
		} {
			*prefixes = prefixes.Of(family)
		}
		facts := interception.Facts{IPv6: true}
		expectSame(t, packet, sample.World(planned(t, redirect, facts)), sample.World(planned(t, only, facts)))
	}
}

func planned(t *testing.T, redirect sidecar.Redirect, facts interception.Facts) *interception.Plan {
	t.Helper()
	plan, err := sidecar.Plan(redirect, facts, "test-plan")
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func randomRedirect(c sample.Choices) sidecar.Redirect {
	none, some := interception.PortSet{}, interception.Ports(80, 8080)
	redirect := sidecar.Redirect{
		Mode:   sample.Pick(c, sidecar.ModeRedirect, sidecar.ModeTProxy),
		TProxy: sidecar.TProxy{Mark: 1337, SelfMark: 1338, Table: 133, Priority: 1337},
		Proxy: sidecar.Proxy{
			UIDs:               interception.UIDs(proxy),
			OutboundPort:       15001,
			InboundPort:        15006,
			TunnelPort:         sample.Pick[interception.Port](c, 0, 15008),
			PassthroughSources: sample.Pick(c, interception.PrefixSet{}, set("127.0.0.6/32", "::6/128")),
		},
		Inbound: sidecar.Inbound{Include: sample.Pick(c, interception.AllPorts(), some, none), Exclude: sample.Pick(c, none, interception.Ports(8080))},
		Outbound: sidecar.Outbound{
			Include:      sample.Pick(c, interception.AllPrefixes(), interception.AllPrefixes(), interception.PrefixSet{}, randomMixture(c)),
			Exclude:      sample.Pick(c, interception.PrefixSet{}, interception.PrefixSet{}, randomMixture(c), randomMixture(c).Union(manyPrefixes(20))),
			IncludePorts: sample.Pick(c, none, none, interception.Ports(443), interception.AllPorts()),
			ExcludePorts: sample.Pick(c, none, none, some),
			Loopback:     sample.Pick(c, set("127.0.0.1/32", "::1/128"), set("127.0.0.0/8"), interception.PrefixSet{}),
			CaptureLocal: c(3) == 0,
		},
		Existing:    sample.Pick(c, sidecar.ExistingCapture, sidecar.ExistingSpare),
		DropInvalid: c(3) == 0,
	}
	if c(2) == 0 {
		redirect.Proxy.GIDs = interception.GIDs(interception.GID(proxy))
		redirect.Proxy.UIDs = sample.Pick(c, redirect.Proxy.UIDs, interception.UIDSet{})
	}
	if c(3) == 0 {
		redirect.DNS = sidecar.DNSCapture{Port: 15053, Servers: sample.Pick(c, interception.PrefixSet{}, set("192.0.2.1/32", "2001:db8::1/128", "127.0.0.1/32"))}
	}
	if c(4) == 0 {
		mine := interception.GIDs(interception.GID(application))
		redirect.Outbound.Groups = sample.Pick(c, sidecar.OwnerGroups{Limited: true}, sidecar.OwnerGroups{Limited: true, Include: mine},
			sidecar.OwnerGroups{Exclude: mine}, sidecar.OwnerGroups{Limited: true, Include: mine, Exclude: mine})
	}
	if c(4) == 0 {
		links := func() interception.InterfaceSet {
			return sample.Pick(c, interception.InterfaceSet{}, interception.Interfaces("eth0"), interception.Interfaces("lo", "net1"))
		}
		redirect.Interfaces = sidecar.InterfacePolicy{Exclude: links(), Reroute: links()}
	}
	return redirect
}

// randomMixture returns prefixes of both families.
func randomMixture(c sample.Choices) interception.PrefixSet {
	return sample.Prefixes(c, interception.IPv4).Union(sample.Prefixes(c, interception.IPv6))
}

func (s situation) dst() netip.Addr         { return s.packet.Dst.Addr() }
func (s situation) port() interception.Port { return interception.Port(s.packet.Dst.Port()) }

// covered reports whether the plan has rules for the packet's family, and planned whether it has
// rules for its protocol too.
func (s situation) covered() bool { return s.facts.IPv6 || s.dst().Is4() }
func (s situation) planned() bool { return s.tcp() && s.covered() }
func (s situation) tcp() bool     { return s.packet.Protocol == interception.ProtocolTCP }

// tproxies reports whether inbound connections reach the proxy unchanged.
func (s situation) tproxies() bool {
	return s.Mode == sidecar.ModeTProxy && !s.Inbound.Include.IsEmpty()
}

func (s situation) inbound() bool {
	_, ok := s.packet.From.(trace.Arrival)
	return ok
}

func (s situation) outbound() bool { return !s.inbound() }

func (s situation) fromProxy() bool {
	socket, ok := s.packet.From.(trace.Socket)
	return ok && (s.Proxy.UIDs.Contains(socket.UID) || s.Proxy.GIDs.Contains(socket.GID))
}

// link returns the link that the packet comes by, or leaves by if nothing changes it.
func (s situation) link() interception.Interface {
	if s.outbound() && s.local() {
		return "lo"
	}
	return "eth0"
}

// rerouted reports whether the packet comes by an interface whose packets are outbound.
func (s situation) rerouted() bool { return s.inbound() && s.Interfaces.Reroute.Contains(s.link()) }

// spared reports whether the packet belongs to an older connection that must not change.
func (s situation) spared() bool {
	return s.tcp() && s.packet.Flags != 0 && s.Existing == sidecar.ExistingSpare
}

// local reports whether the packet leaves by lo.
func (s situation) local() bool {
	return set("127.0.0.0/8", "10.244.0.2/32").Contains(s.dst()) || set("::1/128", "::6/128", "fd00:10:244::2/128").Contains(s.dst())
}

// callsItself reports whether the proxy connects to its own pod, other than by loopback, the
// tunnel, or as a query.
func (s situation) callsItself() bool {
	tunnels := s.Proxy.TunnelPort != 0 && s.port() == s.Proxy.TunnelPort
	asks := s.DNS.Port != 0 && s.port() == 53
	return s.Proxy.InboundPort != 0 && s.fromProxy() && s.tcp() && s.local() && !s.passesThrough() && !s.Outbound.Loopback.Contains(s.dst()) &&
		!tunnels && (s.tproxies() || !asks)
}

func (s situation) passesThrough() bool {
	return s.outbound() && s.local() && s.Proxy.PassthroughSources.Contains(s.outcome.Packet.Src.Addr())
}

// asks reports whether the packet is a query that is captured.
func (s situation) asks() bool {
	return s.outbound() && s.DNS.Port != 0 && s.port() == 53 && (s.DNS.Servers.IsEmpty() || s.DNS.Servers.Contains(s.dst()))
}

func (s situation) excludedPort() bool {
	return s.outbound() && s.Outbound.ExcludePorts.Contains(s.port())
}

// excludedFirst reports whether an interface, a port or the age of the connection excludes it.
func (s situation) excludedFirst() bool {
	return s.excludedPort() && !s.tproxiesItself() || s.Interfaces.Exclude.Contains(s.link()) || s.spared() ||
		s.tproxiesItself() && s.Interfaces.Reroute.Contains("lo")
}

// tproxiesItself reports whether the pod calls itself, and inbound rules decide about the call.
func (s situation) tproxiesItself() bool { return s.tproxies() && s.callsItself() }

func (s situation) excludedGroup() bool {
	socket, ok := s.packet.From.(trace.Socket)
	groups := s.Outbound.Groups
	return ok && (groups.Limited && !groups.Include.Contains(socket.GID) || groups.Exclude.Contains(socket.GID))
}

func (s situation) included() bool {
	return s.outbound() && s.tcp() && (s.Outbound.Include.Contains(s.dst()) || s.Outbound.IncludePorts.Contains(s.port()))
}

// excluded reports whether a line above the includes applies.
func (s situation) excluded() bool {
	local := s.local() && !s.Outbound.CaptureLocal && (s.DNS.Port == 0 || s.port() != 53)
	return s.excludedFirst() || s.passesThrough() || s.fromProxy() || local || s.excludedGroup() || s.asks() ||
		s.Outbound.Loopback.Contains(s.dst()) || s.Outbound.Exclude.Contains(s.dst())
}

func (s situation) excludedInbound() bool {
	return s.Inbound.Exclude.Contains(s.port()) || s.Proxy.TunnelPort != 0 && s.port() == s.Proxy.TunnelPort
}

func (s situation) includedInbound() bool {
	return s.Inbound.Include.Contains(s.port()) && !s.excludedInbound()
}

// untouched reports whether no rule redirected the connection, even to its own destination, or
// stopped it.
func (s situation) untouched() bool {
	return !performed[interception.RedirectTo](s.outcome) && !performed[interception.TProxyTo](s.outcome) &&
		s.outcome.Header.Dst == s.packet.Dst && s.outcome.Verdict != trace.Dropped
}

// captured reports whether the proxy got the connection on that port, and learns its destination. A
// packet that does not open a connection is refused there, unless it went there anyway, or finds no
// transparent proxy.
func (s situation) captured(port interception.Port) bool {
	step, _ := s.outcome.Decisive()
	switch action := step.Rule.Action.(type) {
	case interception.RedirectTo:
		if action.Port != port {
			return false
		}
	case interception.TProxyTo:
		if action.Port != port {
			return false
		}
	default:
		return false
	}
	alive := s.tcp() && s.packet.Flags != 0
	// No address of eth0 can replace ::6.
	dropped := lastFails(s.outcome) && (alive || s.dst() == netip.MustParseAddr("::6"))
	refused := s.outcome.Verdict == trace.Refused && alive && uint16(port) == s.outcome.Header.Dst.Port()
	taker := s.outcome.Listener
	delivered := taker.Proxy && taker.Port == port && s.outcome.OriginalDst == s.packet.Dst && (!alive || s.outcome.Header.Dst == s.packet.Dst)
	return dropped || refused || delivered
}
