// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"net/netip"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// situation is a packet in a pod whose plan was made from a redirect.
type situation struct {
	interception.Redirect
	facts   interception.Facts
	packet  trace.Packet
	outcome trace.Outcome
}

// law is what holds for every situation that it applies to.
type law struct {
	name           string
	applies, holds func(situation) bool
}

// laws are those of a sidecar, under the order that PlanSidecar documents.
var laws = [...]law{
	{
		"the proxy's own traffic never goes to its outbound port",
		situation.fromProxy,
		func(s situation) bool { return !s.captured(s.Proxy.OutboundPort) },
	},
	{
		"the proxy's own traffic goes to its inbound port only when the pod calls itself",
		func(s situation) bool { return s.fromProxy() && !s.callsItself() },
		situation.untouched,
	},
	{
		"the pod calls itself through the proxy's inbound port",
		func(s situation) bool { return s.callsItself() && s.planned() && !s.excludedPort() },
		func(s situation) bool { return s.captured(s.Proxy.InboundPort) },
	},
	{"an excluded outbound port is left alone", situation.excludedPort, situation.untouched},
	{
		"a passthrough source over lo is left alone",
		situation.passesThrough, situation.untouched,
	},
	{
		"an excluded destination is left alone, save the pod's call to itself",
		func(s situation) bool {
			return s.outbound() && s.Outbound.Exclude.Contains(s.dst()) && !s.callsItself()
		},
		situation.untouched,
	},
	{
		"an included destination or port goes to the outbound port when nothing above excludes it",
		func(s situation) bool { return s.planned() && s.included() && !s.excluded() },
		func(s situation) bool { return s.captured(s.Proxy.OutboundPort) },
	},
	{
		"what is not included is left alone, save the pod's call to itself",
		func(s situation) bool { return s.outbound() && !s.included() && !s.callsItself() },
		situation.untouched,
	},
	{
		"what is local never leaves the pod",
		func(s situation) bool { return s.outbound() && s.local() },
		func(s situation) bool { return s.outcome.Link == "lo" && s.outcome.Verdict != trace.Sent },
	},
	{
		"what the application sends over lo is left alone, save by CaptureLocal",
		func(s situation) bool {
			return s.outbound() && s.local() && !s.fromProxy() && !s.Outbound.CaptureLocal
		},
		situation.untouched,
	},
	{
		"a loopback destination is left alone",
		func(s situation) bool { return s.outbound() && s.Outbound.Loopback.Contains(s.dst()) },
		situation.untouched,
	},
	{
		"an included inbound port goes to the inbound port",
		func(s situation) bool {
			return s.inbound() && s.planned() && s.Inbound.Include.Contains(s.port()) && !s.excludedInbound()
		},
		func(s situation) bool {
			// No address of eth0 can stand for this one, and the kernel drops what it cannot redirect.
			return s.captured(s.Proxy.InboundPort) || s.dst() == netip.MustParseAddr("::6") && s.outcome.Verdict == trace.Dropped
		},
	},
	{"an excluded inbound port and the tunnel port are left alone", situation.excludedInbound, situation.untouched},
	{
		"an inbound port that is not included is left alone",
		func(s situation) bool { return s.inbound() && !s.Inbound.Include.Contains(s.port()) },
		situation.untouched,
	},
	{
		"udp is left alone",
		func(s situation) bool { return s.packet.Protocol == interception.ProtocolUDP },
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
			return s.planned() || s.untouched()
		},
	},
}

func TestLaws(t *testing.T) {
	t.Parallel()
	applied := map[string]int{}
	for seed := range uint64(1000) {
		choose := seeded(seed)
		s := situation{Redirect: randomRedirect(choose), facts: interception.Facts{IPv6: choose(4) > 0}}
		plan := planned(t, s.Redirect, s.facts)
		for range 4 {
			s.packet = randomPacket(choose)
			s.outcome = traced(t, randomWorld(plan), s.packet)
			for _, law := range laws {
				if s.outcome.Verdict == trace.Unroutable || !law.applies(s) {
					continue
				}
				applied[law.name]++
				if !law.holds(s) {
					t.Errorf("seed %d: %s\n%s%s", seed, law.name, plan, s.outcome.Report())
				}
			}
		}
	}
	for _, law := range laws {
		if applied[law.name] < 25 {
			t.Errorf("the law %q applied to %d packets only: they test too little", law.name, applied[law.name])
		}
	}
}

// What a redirect says about one family changes nothing for the other.
func TestFamiliesAreIndependent(t *testing.T) {
	t.Parallel()
	for seed := range uint64(1000) {
		choose := seeded(seed)
		redirect, packet := randomRedirect(choose), randomPacket(choose)
		family := interception.FamilyOf(packet.Dst.Addr())
		only := redirect
		for _, prefixes := range []*interception.PrefixSet{
			&only.Proxy.PassthroughSources, &only.Outbound.Include, &only.Outbound.Exclude, &only.Outbound.Loopback,
		} {
			*prefixes = prefixes.Of(family)
		}
		facts := interception.Facts{IPv6: true}
		expectSame(t, packet, randomWorld(planned(t, redirect, facts)), randomWorld(planned(t, only, facts)))
	}
}

func planned(t *testing.T, redirect interception.Redirect, facts interception.Facts) *interception.Plan {
	t.Helper()
	plan, err := interception.PlanSidecar(redirect, facts, "test-plan")
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func randomRedirect(c choices) interception.Redirect {
	none, some := interception.PortSet{}, interception.Ports(80, 8080)
	redirect := interception.Redirect{
		Proxy: interception.Proxy{
			UIDs:               interception.UIDs(proxy),
			OutboundPort:       15001,
			InboundPort:        15006,
			TunnelPort:         pick[interception.Port](c, 0, 15008),
			PassthroughSources: pick(c, interception.PrefixSet{}, set("127.0.0.6/32", "::6/128")),
		},
		Inbound: interception.Inbound{Include: pick(c, interception.AllPorts(), some, none), Exclude: pick(c, none, interception.Ports(8080))},
		Outbound: interception.Outbound{
			Include:      pick(c, interception.AllPrefixes(), interception.AllPrefixes(), interception.PrefixSet{}, randomMixture(c)),
			Exclude:      pick(c, interception.PrefixSet{}, interception.PrefixSet{}, randomMixture(c), randomMixture(c).Union(manyPrefixes(20))),
			IncludePorts: pick(c, none, none, interception.Ports(443), interception.AllPorts()),
			ExcludePorts: pick(c, none, none, some),
			Loopback:     pick(c, set("127.0.0.1/32", "::1/128"), set("127.0.0.0/8"), interception.PrefixSet{}),
			CaptureLocal: c(3) == 0,
		},
	}
	if c(2) == 0 {
		redirect.Proxy.GIDs = interception.GIDs(interception.GID(proxy))
		redirect.Proxy.UIDs = pick(c, redirect.Proxy.UIDs, interception.UIDSet{})
	}
	return redirect
}

// randomMixture are prefixes of both families.
func randomMixture(c choices) interception.PrefixSet {
	return randomPrefixes(c, interception.IPv4).Union(randomPrefixes(c, interception.IPv6))
}

func (s situation) dst() netip.Addr         { return s.packet.Dst.Addr() }
func (s situation) port() interception.Port { return interception.Port(s.packet.Dst.Port()) }

// planned reports whether the plan has rules for the packet's protocol and family.
func (s situation) planned() bool {
	return s.packet.Protocol == interception.ProtocolTCP && (s.facts.IPv6 || s.dst().Is4())
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

// local reports whether the packet leaves by lo.
func (s situation) local() bool {
	return set("127.0.0.0/8", "10.244.0.2/32").Contains(s.dst()) || set("::1/128", "::6/128", "fd00:10:244::2/128").Contains(s.dst())
}

// callsItself reports whether the proxy sends to its own pod, other than by loopback or the tunnel.
func (s situation) callsItself() bool {
	return s.fromProxy() && s.local() && !s.passesThrough() && !s.Outbound.Loopback.Contains(s.dst()) &&
		(s.Proxy.TunnelPort == 0 || s.port() != s.Proxy.TunnelPort)
}

func (s situation) passesThrough() bool {
	return s.outbound() && s.local() && s.Proxy.PassthroughSources.Contains(s.outcome.Packet.Src.Addr())
}

func (s situation) excludedPort() bool {
	return s.outbound() && s.Outbound.ExcludePorts.Contains(s.port())
}

func (s situation) included() bool {
	return s.outbound() && (s.Outbound.Include.Contains(s.dst()) || s.Outbound.IncludePorts.Contains(s.port()))
}

// excluded reports whether anything stands above the includes.
func (s situation) excluded() bool {
	return s.excludedPort() || s.passesThrough() || s.fromProxy() || s.local() && !s.Outbound.CaptureLocal ||
		s.Outbound.Loopback.Contains(s.dst()) || s.Outbound.Exclude.Contains(s.dst())
}

func (s situation) excludedInbound() bool {
	return s.inbound() && (s.Inbound.Exclude.Contains(s.port()) || s.Proxy.TunnelPort != 0 && s.port() == s.Proxy.TunnelPort)
}

// untouched reports whether no rule redirected the connection, be it to where it was going.
func (s situation) untouched() bool {
	step, _ := s.outcome.Decisive()
	_, redirected := step.Rule.Action.(interception.RedirectTo)
	return !redirected && s.outcome.Header.Dst == s.packet.Dst
}

// captured reports whether the proxy got the connection on that port, and learns where it was going.
func (s situation) captured(port interception.Port) bool {
	step, ok := s.outcome.Decisive()
	return ok && step.Rule.Action == interception.RedirectTo{Port: port} && s.outcome.Verdict == trace.Delivered &&
		s.outcome.Listener.Proxy && s.outcome.Listener.Port == port && s.outcome.OriginalDst == s.packet.Dst
}
