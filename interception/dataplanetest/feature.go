// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"fmt"
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

// feature is one thing that a plan can express.
type feature struct {
	name  string
	build func(b *interception.Builder)
}

// featureName begins the id or name of the subject of a feature's plan.
const featureName = "feature"

func features() []feature {
	var all []feature
	all = append(all, objectFeatures()...)
	all = append(all, actionFeatures()...)
	return append(all, matchFeatures()...)
}

func objectFeatures() []feature {
	prefix := netip.MustParsePrefix
	return append(routeFeatures(), []feature{
		object("link", func(b *interception.Builder) {
			b.Link(interception.Link{ID: featureName, Name: "feature0", Why: "a feature"})
		}),
		object("tunnel", func(b *interception.Builder) {
			far := interception.Geneve{VNI: 77, Remote: netip.MustParseAddr("192.0.2.7"), Port: 6081}
			b.Link(interception.Link{ID: featureName, Name: "feature0", Geneve: &far, Why: "a feature"})
		}),
		object("VXLAN tunnel over IPv4", vxlan("192.0.2.7")),
		object("VXLAN tunnel over IPv6", vxlan("2001:db8::7")),
		object("pair of links", func(b *interception.Builder) {
			far := interception.Veth{Peer: "feature1", Namespace: otherNamespace}
			b.Link(interception.Link{ID: featureName, Name: "feature0", Veth: &far, MTU: 1400, Why: "a feature"})
		}),
		object("address", func(b *interception.Builder) {
			b.Address(interception.Address{ID: featureName, Device: "lo", Prefix: prefix("10.78.0.1/24"), Why: "a feature"})
		}),
		object("sysctl", func(b *interception.Builder) {
			b.Sysctl(interception.Sysctl{ID: featureName, Key: sysctls()[0], Value: 66, Why: "a feature"})
		}),
		object("fixed set", func(b *interception.Builder) {
			set := b.Set(featureName, interception.Prefixes(prefix("192.0.2.0/25"), prefix("198.51.100.9/32")), "a feature")
			c := b.Filter("chain")
			c.Entry(interception.Output, interception.Match{}, "an entry")
			c.Do(featureName, interception.Match{DstSet: interception.Is(set)}, interception.Return{}, "a feature")
		}),
		object("live set of addresses", func(b *interception.Builder) { b.LiveAddresses(featureName, interception.IPv4, "a feature") }),
		object("live set", func(b *interception.Builder) { b.LiveSet(featureName, interception.IPv6, "a feature") }),
	}...)
}

func object(name string, add func(b *interception.Builder)) feature {
	return feature{"object " + name, add}
}

func routeFeatures() []feature {
	prefix := netip.MustParsePrefix
	return []feature{
		object("route", func(b *interception.Builder) {
			b.Route(interception.Route{ID: featureName, Destination: prefix("198.51.100.0/24"), Device: "lo", Table: 178, Why: "a feature"})
		}),
		object("route that refuses", refusing(interception.RouteUnreachable, "198.51.100.0/24")),
		object("route that refuses IPv6", refusing(interception.RouteUnreachable, "2001:db8::/32")),
		object("black hole", refusing(interception.RouteBlackhole, "198.51.100.0/24")),
		object("black hole for IPv6", refusing(interception.RouteBlackhole, "2001:db8::/32")),
		object("route to other tables", refusing(interception.RouteThrow, "0.0.0.0/0")),
		object("route to other tables for IPv6", refusing(interception.RouteThrow, "::/0")),
		object("route with a metric and a source", func(b *interception.Builder) {
			b.Route(interception.Route{
				ID: featureName, Destination: prefix("198.51.100.0/24"), Device: "lo", Gateway: netip.MustParseAddr("192.0.2.1"), OnLink: true,
				Source: netip.MustParseAddr("127.0.0.1"), Metric: 7, Table: 178, Why: "a feature",
			})
		}),
		object("route with a metric and a source for IPv6", func(b *interception.Builder) {
			b.Route(interception.Route{
				ID: featureName, Destination: prefix("2001:db8::/32"), Device: "lo", Source: netip.IPv6Loopback(), Metric: 7, Table: 178, Why: "a feature",
			})
		}),
		object("policy rule", func(b *interception.Builder) {
			b.PolicyRule(interception.PolicyRule{
				ID: featureName, Family: interception.IPv6, Mark: interception.WholeMark(0x78), Table: 178, Priority: 21001, Why: "a feature",
			})
		}),
		object("policy rule without a mark", func(b *interception.Builder) {
			b.PolicyRule(interception.PolicyRule{
				ID: featureName, Family: interception.IPv4, Source: prefix("192.0.2.0/24"), Destination: prefix("10.78.0.1/32"), In: "lo",
				Priority: 21002, Why: "a feature",
			})
		}),
		object("policy rule for any packet", func(b *interception.Builder) {
			b.PolicyRule(interception.PolicyRule{
				ID: featureName, Family: interception.IPv4, Any: true, Table: 178, Priority: 21003, Why: "a feature",
			})
		}),
		object("policy rule that goes to another", func(b *interception.Builder) {
			b.PolicyRule(interception.PolicyRule{
				ID: featureName, Family: interception.IPv6, Mark: interception.MarkBits{Value: 0x200, Mask: 0x200}, Goto: 32766, Priority: 21004,
				Why: "a feature",
			})
		}),
	}
}

// refusing returns a feature of a route that sends nothing.
func refusing(kind interception.RouteType, destination string) func(b *interception.Builder) {
	return func(b *interception.Builder) {
		b.Route(interception.Route{ID: featureName, Type: kind, Destination: netip.MustParsePrefix(destination), Table: 178, Why: "a feature"})
	}
}

// otherNamespace is the label of the namespace to which pairs of links lead.
const otherNamespace string = "other"

func vxlan(remote string) func(b *interception.Builder) {
	return func(b *interception.Builder) {
		l := interception.Link{
			ID: featureName, Name: "feature0", VXLAN: &interception.VXLAN{VNI: 77, Remote: netip.MustParseAddr(remote), Port: 4789},
			HardwareAddr: "02:00:00:00:00:07", Why: "a feature",
		}
		l.MTU = l.MTUOver(1500)
		b.Link(l)
	}
}

// actions tries actions in a chain of a table that a hook leads to.
func actions[A interception.Action](
	table interception.TableKind, hook interception.Hook, chain func(*interception.Builder, interception.ChainName) *interception.ChainRef[A],
	match interception.Match, all ...A,
) []feature {
	var features []feature
	for _, action := range all {
		features = append(features, feature{fmt.Sprintf("%s %T %v", table, action, action), func(b *interception.Builder) {
			c := chain(b, "chain")
			c.Entry(hook, interception.Match{}, "an entry")
			c.Do(featureName, match, action, "a feature")
		}})
	}
	return features
}

func actionFeatures() []feature {
	tcp := interception.Match{L4: interception.TCP()}
	tcp4 := interception.Match{L4: interception.TCP(), Family: interception.IPv4}
	udp6 := interception.Match{L4: interception.UDP(), Family: interception.IPv6}
	bits := interception.MarkBits{Value: 0x12, Mask: 0xff}
	v4, v6 := netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("2001:db8::1")
	log := interception.Log{Prefix: "feature: "}
	marked := interception.Match{Mark: interception.Is(bits), ConnMark: interception.Is(bits)}
	all := actions[interception.RawAction](interception.Raw, interception.Prerouting, (*interception.Builder).Raw, tcp, interception.Accept{},
		interception.Return{}, interception.Drop{}, interception.SetZone{Zone: 7}, interception.NoTrack{}, log)
	for _, more := range [][]feature{
		actions[interception.MangleAction](interception.Mangle, interception.Output, (*interception.Builder).Mangle, tcp, interception.Accept{},
			interception.Return{}, interception.Drop{}, interception.SetMark{Mark: interception.WholeMark(7)}, interception.SetMark{Mark: bits},
			interception.SaveMark{}, interception.SaveMark{Mask: 0xff}, interception.RestoreMark{}, interception.RestoreMark{Mask: 0xff},
			interception.SetConnMark{Mark: bits}, log),
		actions[interception.MangleAction](interception.Mangle, interception.Output, (*interception.Builder).Mangle, marked,
			interception.SaveMark{Mask: 0x30}, interception.RestoreMark{Mask: 0x30}),
		actions[interception.MangleAction](interception.Mangle, interception.Prerouting, (*interception.Builder).Mangle, tcp,
			interception.TProxyTo{Port: 15006, Mark: interception.WholeMark(7)}, interception.TProxyTo{Port: 15006, Mark: bits}),
		actions[interception.NATAction](interception.NAT, interception.Output, (*interception.Builder).NAT, tcp4, interception.Accept{},
			interception.Return{}, interception.RedirectTo{Port: 15001}, interception.DNATTo{Addr: v4}, interception.DNATTo{Addr: v4, Port: 80}, log),
		actions[interception.NATAction](interception.NAT, interception.Output, (*interception.Builder).NAT, udp6,
			interception.DNATTo{Addr: v6, Port: 53}),
		actions[interception.NATAction](interception.NAT, interception.Postrouting, (*interception.Builder).NAT, tcp4,
			interception.SNATTo{Addr: v4}, interception.SNATTo{Addr: v4, Port: 1024}, interception.SNATTo{Keep: true}),
		actions[interception.NATAction](interception.NAT, interception.Input, (*interception.Builder).NAT, udp6, interception.SNATTo{Keep: true}),
		actions[interception.FilterAction](interception.Filter, interception.Input, (*interception.Builder).Filter, tcp, interception.Accept{},
			interception.Return{}, interception.Drop{}, interception.Reject{}, log),
		actions[interception.FilterAction](interception.Filter, interception.Forward, (*interception.Builder).Filter, interception.Match{},
			interception.Reject{}),
	} {
		all = append(all, more...)
	}
	return all
}

// matchFeatures returns the conditions, each plain and, where possible, negated.
func matchFeatures() []feature {
	in := func(p ...string) interception.Condition[interception.PrefixSet] {
		var list []netip.Prefix
		for _, prefix := range p {
			list = append(list, netip.MustParsePrefix(prefix))
		}
		return interception.Is(interception.Prefixes(list...))
	}
	ports := interception.Ports(80, 443, 8080)
	opening := interception.Opening()
	mark := interception.MarkBits{Value: 1, Mask: 3}
	var features []feature
	for _, m := range []interception.Match{
		{Family: interception.IPv6},
		{Out: interception.Is(interception.Interfaces("eth0", "net1*"))},
		{Out: interception.Not(interception.Interfaces("eth0", "net1*"))},
		{Src: in("10.0.0.0/8")},
		{Dst: interception.Not(in("2001:db8::/32").Set())},
		{Dst: in("192.0.2.0/24", "198.51.100.0/25")},
		{L4: interception.TCP().To(ports)},
		{L4: interception.UDP().NotTo(ports)},
		{L4: interception.TCP().From(interception.PortRange(1024, 2048))},
		{L4: interception.TCP().NotFrom(ports)},
		{L4: interception.TCP().Flags(opening)},
		{L4: interception.TCP().NotFlags(opening)},
		{UID: interception.Is(interception.UIDs(1337))},
		{UID: interception.Not(interception.UIDs(1337, 1338))},
		{GID: interception.Is(interception.GIDs(1337))},
		{GID: interception.Not(interception.GIDs(1337, 2000))},
		{Mark: interception.Is(mark)},
		{Mark: interception.Not(mark)},
		{ConnMark: interception.Is(mark)},
		{ConnMark: interception.Not(mark)},
		{State: interception.Is(interception.StateInvalid)},
		{State: interception.Not(interception.StateEstablished | interception.StateRelated)},
		{Direction: interception.DirectionOriginal},
		{Direction: interception.DirectionReply},
		{Direction: interception.DirectionReply, State: interception.Is(interception.StateEstablished | interception.StateInvalid)},
	} {
		features = append(features, feature{fmt.Sprintf("match %v", m), func(b *interception.Builder) {
			c := b.Mangle("chain")
			c.Entry(interception.Output, interception.Match{}, "an entry")
			c.Do(featureName, m, interception.Return{}, "a feature")
		}})
	}
	return append(features, feature{"match in", func(b *interception.Builder) {
		c := b.Mangle("chain")
		c.Entry(interception.Prerouting, interception.Match{}, "an entry")
		c.Do(featureName, interception.Match{In: interception.Is(interception.Interfaces("eth*"))}, interception.Return{}, "a feature")
	}})
}
