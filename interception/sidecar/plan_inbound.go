// SPDX-License-Identifier: Apache-2.0

package sidecar

import "github.com/meshcni/meshcni/interception"

// inbound writes the nat rules for packets that arrive on an interface.
func (p planner) inbound() {
	redirects := p.Mode == ModeRedirect && p.capturesSomeInbound()
	if !redirects && !p.reroutes() {
		return
	}
	c := p.builder.NAT("inbound")
	c.Entry(interception.Prerouting, interception.Match{Family: p.family(), L4: interception.TCP()}, "connections to the pod")
	if p.reroutes() {
		p.rerouted(c)
	}
	if !redirects {
		return
	}
	if !p.Interfaces.Exclude.IsEmpty() {
		c.Do("inbound.exclude.interfaces", interception.Match{In: interception.Is(p.Interfaces.Exclude)}, interception.Return{},
			"excluded interfaces", p.Sources[ParameterInterfacesExclude]...)
	}
	if p.Proxy.TunnelPort != 0 {
		c.Do("inbound.tunnel", interception.Match{L4: interception.TCP().To(interception.Ports(p.Proxy.TunnelPort))}, interception.Return{},
			"tunnelled connections are for the proxy already")
	}
	if !p.Inbound.Exclude.IsEmpty() {
		c.Do("inbound.exclude.ports", interception.Match{L4: tcpTo(p.Inbound.Exclude)}, interception.Return{},
			"excluded inbound ports", p.Sources[ParameterInboundExclude]...)
	}
	c.Do("inbound.capture", interception.Match{L4: tcpTo(p.Inbound.Include)}, interception.RedirectTo{Port: p.Proxy.InboundPort},
		"inbound connections go to the proxy", p.Sources[ParameterInboundInclude]...)
}

// rerouted treats packets from virtual machines in the pod as outbound, never as inbound.
func (p planner) rerouted(c natChain) {
	by := interception.Match{In: interception.Is(p.Interfaces.Reroute)}
	from := p.Sources[ParameterInterfacesReroute]
	capture := interception.RedirectTo{Port: p.Proxy.OutboundPort}
	const why = "connections of virtual machines go to the proxy"
	if p.Outbound.Include.IsAll() {
		by.L4 = interception.TCP()
		c.Do("reroute.capture", by, capture, why, from...)
		return // no other inbound rule
	}
	for _, family := range p.families() {
		if prefixes := p.Outbound.Include.Of(family); !prefixes.IsEmpty() {
			match := p.to(prefixes, includedSet, p.Sources[ParameterOutboundInclude])
			match.In, match.L4 = by.In, interception.TCP()
			c.Do(id("reroute.capture", family), match, capture, why, from...)
		}
	}
	c.Do("reroute.else", by, interception.Return{}, "nothing else of virtual machines is captured", from...)
}

// dnsPort is the port of resolvers (RFC 1035, section 4.2).
const dnsPort interception.Port = 53

// The connection tracking zones of queries. An application and the proxy that asks on its behalf
// may use the same source address and port for the same resolver.
const (
	proxyZone       uint16 = 1
	applicationZone uint16 = 2
)

// queries captures DNS over TCP and UDP.
func (p planner) queries(c natChain) {
	if !p.capturesDNS() || p.Outbound.ExcludePorts.Contains(dnsPort) {
		return
	}
	capture := interception.RedirectTo{Port: p.DNS.Port}
	p.eachServer(func(suffix interception.RuleID, servers interception.Condition[interception.PrefixSet]) {
		c.Do("dns.tcp"+suffix, interception.Match{Dst: servers, L4: interception.TCP().To(interception.Ports(dnsPort))}, capture,
			"queries go to the proxy", p.Sources[ParameterDNS]...)
		c.Do("dns.udp"+suffix, interception.Match{Dst: servers, L4: interception.UDP().To(interception.Ports(dnsPort))}, capture,
			"queries go to the proxy", p.Sources[ParameterDNS]...)
	})
}

// zones separates a UDP query's two legs: to the proxy, and from the proxy to the resolver.
func (p planner) zones() {
	if !p.capturesDNS() {
		return
	}
	from := p.Sources[ParameterDNS]
	query := interception.UDP().To(interception.Ports(dnsPort))
	out := p.builder.Raw("dns-output")
	out.Entry(interception.Output, interception.Match{Family: p.family(), L4: interception.UDP()}, "queries and answers over UDP")
	byProxy(p, out, "dns.zone.query.proxy", interception.Match{L4: query}, interception.RawAction(interception.SetZone{Zone: proxyZone}),
		"what the proxy asks")
	byProxy(p, out, "dns.zone.answer.proxy", interception.Match{L4: interception.UDP().From(interception.Ports(p.DNS.Port))},
		interception.RawAction(interception.SetZone{Zone: applicationZone}),
		"what the proxy answers")
	in := p.builder.Raw("dns-inbound")
	in.Entry(interception.Prerouting, interception.Match{Family: p.family(), L4: interception.UDP()}, "answers over UDP")
	p.eachServer(func(suffix interception.RuleID, servers interception.Condition[interception.PrefixSet]) {
		match := p.notProxy()
		match.Dst, match.L4 = servers, query
		out.Do("dns.zone.query"+suffix, match, interception.SetZone{Zone: applicationZone}, "what the application asks", from...)
		in.Do("dns.zone.answer"+suffix, interception.Match{Src: servers, L4: interception.UDP().From(interception.Ports(dnsPort))},
			interception.SetZone{Zone: proxyZone},
			"what a resolver answers the proxy", from...)
	})
}

// eachServer calls rule once for all resolvers, or once per family for the configured ones.
func (p planner) eachServer(rule func(suffix interception.RuleID, servers interception.Condition[interception.PrefixSet])) {
	if p.DNS.Servers.IsEmpty() {
		rule("", interception.Condition[interception.PrefixSet]{})
		return
	}
	for _, family := range p.families() {
		if servers := p.DNS.Servers.Of(family); !servers.IsEmpty() {
			rule("."+interception.RuleID(family.String()), interception.Is(servers))
		}
	}
}
