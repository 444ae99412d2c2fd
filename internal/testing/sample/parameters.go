// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"fmt"
	"net/netip"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
)

// parameters returns the fields of an [Input].
func parameters() []Parameter {
	var all []Parameter
	all = append(all, proxyParameters()...)
	all = append(all, inboundParameters()...)
	all = append(all, outboundParameters()...)
	return append(all, otherParameters()...)
}

func proxyParameters() []Parameter {
	return []Parameter{
		parameter("Mode", func(in *Input) *sidecar.Mode { return &in.Redirect.Mode },
			value("REDIRECT", sidecar.ModeRedirect), value("TPROXY", sidecar.ModeTProxy)),
		parameter("Proxy.UIDs", func(in *Input) *interception.UIDSet { return &in.Redirect.Proxy.UIDs },
			value("one user", interception.UIDs(1337)), value(Empty, interception.UIDSet{}), value("several users", interception.UIDs(3, 4, 6))),
		parameter("Proxy.GIDs", func(in *Input) *interception.GIDSet { return &in.Redirect.Proxy.GIDs },
			value("one group", interception.GIDs(1337)), value(Empty, interception.GIDSet{}), value("several groups", interception.GIDs(1, 2, 5))),
		port("Proxy.OutboundPort", func(in *Input) *interception.Port { return &in.Redirect.Proxy.OutboundPort }, 15001),
		port("Proxy.InboundPort", func(in *Input) *interception.Port { return &in.Redirect.Proxy.InboundPort }, 15006),
		port("Proxy.TunnelPort", func(in *Input) *interception.Port { return &in.Redirect.Proxy.TunnelPort }, 15008),
		byFamily("Proxy.PassthroughSources", func(in *Input) *interception.PrefixSet { return &in.Redirect.Proxy.PassthroughSources },
			"127.0.0.6/32", "::6/128"),
	}
}

func inboundParameters() []Parameter {
	return []Parameter{
		parameter("Inbound.Include", func(in *Input) *interception.PortSet { return &in.Redirect.Inbound.Include },
			value("all ports", interception.AllPorts()), value(Empty, interception.PortSet{}), value("some ports", interception.Ports(8080, 9090))),
		parameter("Inbound.Exclude", func(in *Input) *interception.PortSet { return &in.Redirect.Inbound.Exclude },
			value("some ports", interception.Ports(15020, 15021, 15090)), value(Empty, interception.PortSet{}),
			value("all ports", interception.AllPorts())),
	}
}

func outboundParameters() []Parameter {
	return []Parameter{
		outboundInclude(),
		outboundExclude(),
		parameter("Outbound.IncludePorts", func(in *Input) *interception.PortSet { return &in.Redirect.Outbound.IncludePorts },
			value(Empty, interception.PortSet{}), value("some ports", interception.Ports(443, 5432)), value("all ports", interception.AllPorts())),
		parameter("Outbound.ExcludePorts", func(in *Input) *interception.PortSet { return &in.Redirect.Outbound.ExcludePorts },
			value("some ports", interception.Ports(15020)), value(Empty, interception.PortSet{}), value("all ports", interception.AllPorts())),
		byFamily("Outbound.Loopback", func(in *Input) *interception.PrefixSet { return &in.Redirect.Outbound.Loopback },
			"127.0.0.1/32", "::1/128"),
		toggle("Outbound.Groups.Limited", func(in *Input) *bool { return &in.Redirect.Outbound.Groups.Limited }),
		parameter("Outbound.Groups.Include", func(in *Input) *interception.GIDSet { return &in.Redirect.Outbound.Groups.Include },
			value(Empty, interception.GIDSet{}), value("some groups", interception.GIDs(101, 202))),
		parameter("Outbound.Groups.Exclude", func(in *Input) *interception.GIDSet { return &in.Redirect.Outbound.Groups.Exclude },
			value(Empty, interception.GIDSet{}), value("some groups", interception.GIDs(888, 999))),
		toggle("Outbound.CaptureLocal", func(in *Input) *bool { return &in.Redirect.Outbound.CaptureLocal }),
	}
}

func otherParameters() []Parameter {
	interfaces := func(field string, of func(*Input) *interception.InterfaceSet, name interception.Interface) Parameter {
		return parameter(field, of, value(Empty, interception.InterfaceSet{}), value("some interfaces", interception.Interfaces(name)))
	}
	servers := byFamily("DNS.Servers", func(in *Input) *interception.PrefixSet { return &in.Redirect.DNS.Servers },
		"192.0.2.53/32", "2001:db8::53/128")
	servers.Values[0], servers.Values[1] = servers.Values[1], servers.Values[0]
	dns := port("DNS.Port", func(in *Input) *interception.Port { return &in.Redirect.DNS.Port }, 15053)
	dns.Values[0], dns.Values[1] = dns.Values[1], dns.Values[0]
	ipv6 := parameter("Facts.IPv6", func(in *Input) *bool { return &in.Facts.IPv6 }, value("true", true), value("false", false))
	return []Parameter{
		interfaces("Interfaces.Exclude", func(in *Input) *interception.InterfaceSet { return &in.Redirect.Interfaces.Exclude }, "net1"),
		interfaces("Interfaces.Reroute", func(in *Input) *interception.InterfaceSet { return &in.Redirect.Interfaces.Reroute }, "k6t-eth0"),
		dns,
		servers,
		parameter("TProxy", func(in *Input) *sidecar.TProxy { return &in.Redirect.TProxy },
			value("Istio's numbers", sidecar.Istio().Base.TProxy),
			value("other numbers", sidecar.TProxy{Mark: 0x10, SelfMark: 0x20, Table: 200, Priority: 100})),
		parameter("Existing", func(in *Input) *sidecar.Existing { return &in.Redirect.Existing },
			value("ExistingCapture", sidecar.ExistingCapture), value("ExistingSpare", sidecar.ExistingSpare)),
		toggle("DropInvalid", func(in *Input) *bool { return &in.Redirect.DropInvalid }),
		ipv6,
	}
}

// Empty is the name of empty values.
const Empty = "empty"

// The names of the values of [outboundInclude] and [outboundExclude] other than [Empty].
const (
	everything = "everything"
	some4      = "IPv4 prefixes"
	some6      = "IPv6 prefixes"
	some       = "prefixes of both families"
	many       = "ten prefixes of each family"
	whole4     = "all of IPv4"
)

func outboundInclude() Parameter {
	p := parameter("Outbound.Include", func(in *Input) *interception.PrefixSet { return &in.Redirect.Outbound.Include },
		value(everything, interception.AllPrefixes()), value(Empty, interception.PrefixSet{}),
		value(some4, prefixes("10.0.0.0/8")), value(some6, prefixes("2001:db8::/32")),
		value(some, prefixes("10.0.0.0/8", "2001:db8::/32")), value(many, manyPrefixes(10, 0x20)), value(whole4, prefixes("0.0.0.0/0")))
	p.Kinds = []Kind{
		{"is a list with IPv4 prefixes", []string{some4, some, many, whole4}},
		{"is a list with IPv6 prefixes", []string{some6, some, many}},
		{"has IPv4 prefixes", []string{everything, some4, some, many, whole4}},
		{"has IPv6 prefixes", []string{everything, some6, some, many}},
	}
	return p
}

func outboundExclude() Parameter {
	p := parameter("Outbound.Exclude", func(in *Input) *interception.PrefixSet { return &in.Redirect.Outbound.Exclude },
		value(Empty, interception.PrefixSet{}), value(some4, prefixes("192.0.2.0/24")), value(some6, prefixes("2001:db8:1::/48")),
		value(some, prefixes("192.0.2.0/24", "2001:db8:1::/48")), value(many, manyPrefixes(172, 0x30)))
	p.Kinds = []Kind{
		{"has IPv4 prefixes", []string{some4, some, many}},
		{"has IPv6 prefixes", []string{some6, some, many}},
	}
	return p
}

// manyPrefixes are enough of each family to make a set worthwhile.
func manyPrefixes(first4, first6 byte) interception.PrefixSet {
	var list []netip.Prefix
	for i := range byte(10) {
		v4, v6 := netip.AddrFrom4([4]byte{first4, 2 * i}), netip.AddrFrom16([16]byte{first6, 1, 2 * i})
		list = append(list, netip.PrefixFrom(v4, 16), netip.PrefixFrom(v6, 24))
	}
	return interception.Prefixes(list...)
}

// byFamily is a parameter for a set of prefixes with at most one of each family.
func byFamily(field string, of func(*Input) *interception.PrefixSet, v4, v6 string) Parameter {
	p := parameter(field, of, value(some, prefixes(v4, v6)), value(Empty, interception.PrefixSet{}),
		value(some4, prefixes(v4)), value(some6, prefixes(v6)))
	p.Kinds = []Kind{{"has IPv4 prefixes", []string{some, some4}}, {"has IPv6 prefixes", []string{some, some6}}}
	return p
}

func port(field string, of func(*Input) *interception.Port, number interception.Port) Parameter {
	p := parameter(field, of, value(fmt.Sprint(number), number), value("0", interception.Port(0)))
	p.Kinds = []Kind{{"is set", []string{p.Values[0].Name}}, {"is not set", []string{"0"}}}
	return p
}

func toggle(field string, of func(*Input) *bool) Parameter {
	return parameter(field, of, value("false", false), value("true", true))
}

// typed is a value with its name.
type typed[T any] struct {
	name  string
	value T
}

func value[T any](name string, v T) typed[T] { return typed[T]{name, v} }

func parameter[T any](field string, of func(*Input) *T, values ...typed[T]) Parameter {
	p := Parameter{Field: field}
	for _, v := range values {
		p.Values = append(p.Values, Value{v.name, func(in *Input) { *of(in) = v.value }})
	}
	return p
}
